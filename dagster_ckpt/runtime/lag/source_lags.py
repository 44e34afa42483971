"""The lag of all sources of a running query."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from pyspark.sql import SparkSession

from dagster_ckpt.clock import Clock
from dagster_ckpt.protocol.epochs.topic_offsets import Offsets, TopicsNow, next_offsets, offsets_of
from dagster_ckpt.protocol.epochs.upstream import FORMAT as UPSTREAM
from dagster_ckpt.protocol.manifest.manifest import Manifest, SourcePosition
from dagster_ckpt.runtime.declared.sources import Source, positions_by_source
from dagster_ckpt.runtime.lag.lag import Lag, SourceLag, together
from dagster_ckpt.runtime.lag.offset_lag import OffsetHistory, lag_of_any, looked_ms, unread
from dagster_ckpt.runtime.lag.upstream_lag import UpstreamWatch
from dagster_ckpt.runtime.lag.waiting_files import files_lag
from dagster_ckpt.storage.stores.object_store import ObjectStore

FilesAfter = Callable[[Source, str | None], Collection[str]]


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


class AskedTopics(Protocol):
    """The topics of a source, as its brokers have them (`runtime.kafka.topics`)."""

    def now(self, source: Source, names: Collection[str]) -> TopicsNow: ...
    def oldest_ms(self, source: Source, unread: Offsets) -> int | None: ...


class SourceLags:
    """Measures the lag of these sources. `root` is the store that the upstreams are in. For one thread at a time."""

    def __init__(
        self, sources: Sequence[Source], session: SparkSession, root: ObjectStore, topics: AskedTopics, clock: Clock
    ) -> None:
        self._sources = sources
        self._topics = topics
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
                self._of(source, position, view, planned)
                for source, position in zip(self._sources, positions, strict=True)
            ),
        )

    def _of(self, source: Source, position: SourcePosition, view: QueryView, planned: FilesAfter) -> SourceLag:
        if source.identity.format == UPSTREAM:
            return self._upstreams[source.number].lag(position.current)
        if source.reads_files:
            stream = view.streams[source.lines[0]]
            return files_lag(self._session, source, stream, lambda: planned(source, position.current))
        if source.kafka is not None:
            latest = reported(source, view).get("latestOffset")
            history, now_ms = self._histories[source.number], self._clock.now_ms()
            return topics_lag(source, next_offsets(position), latest, self._topics, history, now_ms)
        if view.progress is None:
            return SourceLag()
        return lag_of_any(reported(source, view), looked_ms(view.progress), finds_data=view.finds_data)


def topics_lag(
    source: Source,
    committed: Offsets,
    latest: Mapping[str, Any] | None,
    topics: AskedTopics,
    history: OffsetHistory,
    now_ms: int,
) -> SourceLag:
    """The rows after the `committed` offsets, which wait since the timestamp of the oldest one.

    The brokers are asked, since Spark does not look while an epoch is in work. Its last look, `latest`, alone has
    partitions that are new. Raises `LookupError` before the first one.
    """
    partitions = {**({} if latest is None else offsets_of(latest)), **committed}.keys()
    if not partitions:
        raise LookupError("Spark has not looked at the topics yet")
    now = topics.now(source, {topic for topic, _ in partitions})
    ends = {partition: now.ends[partition] for partition in partitions & now.ends.keys()}
    # A new partition is unread from its beginning on.
    read_to = {**now.begins, **committed}
    lag = history.lag(ends, read_to, now_ms)
    oldest_ms = topics.oldest_ms(source, unread(ends, read_to))
    return lag if oldest_ms is None else replace(lag, since_ms=oldest_ms)


def reported(source: Source, view: QueryView) -> Mapping[str, Any]:
    """What Spark's progress has about a source; empty before the first trigger has ended."""
    if view.progress is None:
        return {}
    description = str(view.streams[source.lines[0]].toString())
    sources: Sequence[Mapping[str, Any]] = view.progress["sources"]
    return next((each for each in sources if each["description"] == description), {})
