"""The sources of a stream, asked for what is new without a streaming query of Spark's.

A file source is Spark's own: it lists, limits and orders the files, and notes which it has seen in the same folder as
it does for a query. So either can go on where the other has ended.
"""

from collections.abc import Sequence
from typing import Any, Protocol

from pyspark.sql import SparkSession

from dagster_ckpt.ids import Epoch
from dagster_ckpt.runtime.micro_batch.batch_pieces import ScannedInput
from dagster_ckpt.runtime.micro_batch.spark_checkpoint import SparkCheckpoint
from dagster_ckpt.runtime.spark.jvm import java_class
from dagster_ckpt.runtime.upstreams.log_scan import LogScan

FILES_MAX = 5_000
"""The most files of a micro-batch where the reader sets no limit: each is a piece that a task is told of."""


class AnySource(Protocol):
    """One source. `stream` is the object of Spark's that reads it, None where there is none."""

    @property
    def stream(self) -> Any: ...

    def begin(self, *, until_now: bool) -> None:
        """Once, before it is asked. `until_now`: it ends with what there is now."""
        ...

    def next_offset(self, offset: str | None) -> str | None:
        """The offset after the next micro-batch that begins at this one, the same where nothing is new."""
        ...


class SourceOffsets:
    """Plans micro-batches: what each has of each source is in `checkpoint`, as Spark notes it.

    `limited`: where a reader sets no limit, all its inputs together have at most `FILES_MAX` files.
    """

    def __init__(
        self, session: SparkSession, inputs: Sequence[ScannedInput], checkpoint: SparkCheckpoint, *, limited: bool
    ) -> None:
        files_max = max(1, FILES_MAX // len(inputs)) if limited else None
        self._checkpoint = checkpoint
        self._batch_id = checkpoint.last_batch
        self._offsets = checkpoint.offsets(self._batch_id)
        self._has_begun = False
        by_source = {each.source: each for each in inputs}
        self._sources: list[AnySource] = [
            _source(session, by_source[source], checkpoint.source_location(source), files_max)
            for source in checkpoint.sources
        ]

    @property
    def streams(self) -> Sequence[Any]:
        """The sources in the JVM, one for each line of the offset log. Raises `LookupError` before `begin`."""
        if not self._has_begun:
            raise LookupError("the sources were not asked yet")
        numbered = {
            line: each.stream
            for source, each in zip(self._checkpoint.sources, self._sources, strict=True)
            for line in source.lines
        }
        return tuple(numbered[line] for line in range(len(numbered)))

    def begin(self, *, until_now: bool) -> None:
        """Once, before the first micro-batch. `until_now`: plan what the sources have now, and nothing after it."""
        for each in self._sources:
            each.begin(until_now=until_now)
        self._has_begun = True

    def next_batch(self) -> int | None:
        """The number of the next micro-batch, which is noted; None where nothing is new."""
        found = tuple(each.next_offset(at) for each, at in zip(self._sources, self._offsets, strict=True))
        if found == self._offsets:
            return None
        self._batch_id += 1
        self._checkpoint.add_batch(self._batch_id, found)
        self._offsets = found
        return self._batch_id


def _source(session: SparkSession, of: ScannedInput, location: str, files_max: int | None) -> AnySource:
    if isinstance(of.scan, LogScan):
        return _StreamSource(of.scan)
    return _FileSource(session, of.relation.dataSource(), location, files_max)


class _FileSource:
    """Files, by Spark's `FileStreamSource`."""

    def __init__(self, session: SparkSession, reader: Any, location: str, files_max: int | None) -> None:
        self._session = session
        self._reader = reader
        self._location = location
        self._files_max = files_max
        self.stream: Any = None
        self._limit: Any = None

    def begin(self, *, until_now: bool) -> None:
        self.stream = self._reader.createSource(self._location)
        self._limit = self.stream.getDefaultReadLimit()
        has_none = str(self._limit.getClass().getSimpleName()) == "ReadAllAvailable"
        # Spark knows only its own limit: of the newest files first it would take the others for too old.
        if has_none and self._files_max is not None and not self._reader.options().contains("latestFirst"):
            limits = java_class(self._session, "org.apache.spark.sql.connector.read.streaming.ReadLimit")
            self._limit = limits.maxFiles(self._files_max)
        if until_now:
            self.stream.prepareForTriggerAvailableNow()

    def next_offset(self, offset: str | None) -> str | None:
        found = self.stream.latestOffset(None, self._limit)
        return offset if found is None else str(found.json())


class _StreamSource:
    """A stream, by its manifests."""

    stream = None

    def __init__(self, scan: LogScan) -> None:
        self._scan = scan
        self._until: Epoch | None = None

    def begin(self, *, until_now: bool) -> None:
        if until_now:
            self._until = self._scan.newest_epoch()

    def next_offset(self, offset: str | None) -> str | None:
        return self._scan.next_offset(offset, self._until)
