"""The lag of all sources of a running query."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from dagster_ckpt.clock import Clock
from dagster_ckpt.protocol.epochs.upstream import FORMAT as UPSTREAM
from dagster_ckpt.protocol.manifest.manifest import Manifest
from dagster_ckpt.runtime.declared.sources import Source, positions_by_source
from dagster_ckpt.runtime.lag.lag import Lag, SourceLag, together
from dagster_ckpt.runtime.lag.offset_lag import OffsetHistory, lag_of_any, looked_ms, partitions_of
from dagster_ckpt.runtime.lag.upstream_lag import UpstreamWatch
from dagster_ckpt.runtime.lag.waiting_files import files_lag
from dagster_ckpt.storage.stores.object_store import ObjectStore

FilesAfter = Callable[[Source, str | None], Collection[str]]

_KAFKA = "kafka"


@dataclass(frozen=True)
class QueryView:
    """What Spark shows of a running query.

    `streams` are its sources in the JVM, one for each line of the offset log. `progress` is Spark's last
    `StreamingQueryProgress`, decoded; None before the first trigger has ended. `finds_data`: its last look at the
    sources has found something.
    """

    streams: Sequence[Any]
    progress: Mapping[str, Any] | None
    finds_data: bool


class SourceLags:
    """Measures the lag of these sources. `root` is the store that the upstreams are in. For one thread at a time."""

    def __init__(self, sources: Sequence[Source], session: SparkSession, root: ObjectStore, clock: Clock) -> None:
        self._sources = sources
        self._session = session
        self._clock = clock
        self._histories = {source.number: OffsetHistory() for source in sources}
        self._upstreams = {
            source.number: UpstreamWatch(root, source.identity.address, clock)
            for source in sources
            if source.identity.format == UPSTREAM
        }

    def measure(self, view: QueryView, manifest: Manifest, planned: FilesAfter) -> Lag:
        """What waits now after `manifest`, the newest; `planned` returns the files that Spark reads after an offset.

        Raises what Spark and the store raise where they do not answer.
        """
        now_ms = self._clock.now_ms()
        positions = positions_by_source(self._sources, manifest)
        return Lag(
            now_ms,
            together(
                self._of(source, position.current, view, planned)
                for source, position in zip(self._sources, positions, strict=True)
            ),
        )

    def _of(self, source: Source, committed: str | None, view: QueryView, planned: FilesAfter) -> SourceLag:
        if source.identity.format == UPSTREAM:
            return self._upstreams[source.number].lag(committed)
        if source.reads_files:
            stream = view.streams[source.lines[0]]
            return files_lag(self._session, source, stream, lambda: planned(source, committed))
        return offset_lag(source, view, committed, self._histories[source.number])


def offset_lag(source: Source, view: QueryView, committed: str | None, history: OffsetHistory) -> SourceLag:
    """The lag of a source by its offsets in Spark's progress; `committed` is its offset in the newest manifest."""
    if view.progress is None:
        return SourceLag()
    at_ms, description = looked_ms(view.progress), str(view.streams[source.lines[0]].toString())
    reported: Sequence[Mapping[str, Any]] = view.progress["sources"]
    found = next((each for each in reported if each["description"] == description), {})
    if source.identity.format == _KAFKA and found.get("latestOffset") is not None:
        known = {} if committed is None else partitions_of(committed)
        return history.lag(partitions_of(found["latestOffset"]), known, at_ms)
    return lag_of_any(found, at_ms, finds_data=view.finds_data)
