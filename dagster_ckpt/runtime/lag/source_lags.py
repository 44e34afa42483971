"""The lag of all sources of a running query: of files, of sources that report offsets, and of upstreams.

A record of Kafka has a timestamp, so the oldest unread one says since when it waits. Where records have none, that is
the time of the first look which found more than is committed now: `OffsetHistory` keeps the looks that still matter. An
offset of any other source has no time either: it waits since Spark's last look (`StreamingQueryProgress`), which is
taken with every trigger, and every 10 s while nothing comes.

Spark reports no number of unread files. Its source keeps the addresses of the files it has seen in the JVM, so they are
compared there, with two calls for any number of files.
"""

import re
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Protocol

from pyspark.sql import SparkSession

from dagster_ckpt.clock import Clock
from dagster_ckpt.ids import EMPTY
from dagster_ckpt.protocol.epochs.lineage import lineage
from dagster_ckpt.protocol.epochs.topic_offsets import Offsets, TopicsNow, next_offsets, parse_offsets
from dagster_ckpt.protocol.epochs.upstream import FORMAT as UPSTREAM
from dagster_ckpt.protocol.epochs.upstream import UpstreamPosition, decode, following_count
from dagster_ckpt.protocol.manifest.manifest import Manifest, SourcePosition
from dagster_ckpt.runtime.declared.sources import StreamSource, positions_by_source
from dagster_ckpt.runtime.lag.lag import Lag, SourceLag, together
from dagster_ckpt.runtime.spark.file_index import SEPARATOR, file_index, file_states, joined_addresses
from dagster_ckpt.runtime.spark.jvm import java_class
from dagster_ckpt.storage.chain.manifest_chain import ManifestChain
from dagster_ckpt.storage.retention_refs.upstream_log import UpstreamLog
from dagster_ckpt.storage.stores.folder import stream_folder
from dagster_ckpt.storage.stores.object_store import ObjectStore

_LOOKS_MAX = 1_000


@dataclass
class OffsetHistory:
    """The newest offsets that were found in one source, and when they were first found; not thread-safe."""

    _looks: deque[tuple[int, Offsets]] = field(default_factory=deque, init=False)

    def lag(self, latest: Offsets, committed: Offsets, looked_ms: int) -> SourceLag:
        """The lag after one more look. Partitions that are not in `committed` are unread from 0 on."""
        if not self._looks or self._looks[-1][1] != latest:
            self._looks.append((looked_ms, latest))
        while self._looks and not unread(self._looks[0][1], committed):
            self._looks.popleft()
        if len(self._looks) > _LOOKS_MAX:
            self._looks = deque([look for at, look in enumerate(self._looks) if at % 2 == 0])
        rows = sum(latest[partition] - at for partition, at in unread(latest, committed).items())
        return SourceLag(rows=rows, since_ms=self._looks[0][0] if self._looks else None)


def unread(latest: Offsets, committed: Offsets) -> Offsets:
    """Where each partition that has more than is committed is read on."""
    begins = {partition: committed.get(partition, 0) for partition in latest}
    return {partition: at for partition, at in begins.items() if latest[partition] > at}


def lag_of_any(source: Mapping[str, Any], looked_ms: int, *, finds_data: bool) -> SourceLag:
    """The lag of a source of an unknown kind, from its part of Spark's progress.

    Nothing waits where Spark's last look found nothing. Otherwise what has come since that look is unread, perhaps.
    """
    latest = source.get("latestOffset")
    waits = finds_data or (latest is not None and latest != source.get("endOffset"))
    return SourceLag(since_ms=looked_ms if waits else None)


def looked_ms(progress: Mapping[str, Any]) -> int:
    """When the trigger of this progress began, in ms since the Unix epoch."""
    return round(datetime.fromisoformat(str(progress["timestamp"])).timestamp() * 1000)


FilesAfter = Callable[[StreamSource, str | None], Collection[str]]


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

    def now(self, source: StreamSource, names: Collection[str]) -> TopicsNow: ...
    def oldest_ms(self, source: StreamSource, unread: Offsets) -> int | None: ...


class SourceLags:
    """Measures the lag of these sources. `root` is the store that the upstreams are in. For one thread at a time."""

    def __init__(
        self,
        sources: Sequence[StreamSource],
        session: SparkSession,
        root: ObjectStore,
        topics: AskedTopics,
        clock: Clock,
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

    def _of(self, source: StreamSource, position: SourcePosition, view: QueryView, planned: FilesAfter) -> SourceLag:
        if source.identity.format == UPSTREAM:
            return self._upstreams[source.number].lag(position.current)
        if source.reads_files:
            stream = view.streams[source.lines[0]]
            return files_lag(self._session, source, stream, lambda: planned(source, position.current))
        if source.kafka is not None:
            latest = source_progress(source, view).get("latestOffset")
            history, now_ms = self._histories[source.number], self._clock.now_ms()
            return topics_lag(source, next_offsets(position), latest, self._topics, history, now_ms)
        if view.progress is None:
            return SourceLag()
        return lag_of_any(source_progress(source, view), looked_ms(view.progress), finds_data=view.finds_data)


def topics_lag(
    source: StreamSource,
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
    partitions = {**({} if latest is None else parse_offsets(latest)), **committed}.keys()
    if not partitions:
        raise LookupError("Spark has not looked at the topics yet")
    now = topics.now(source, {topic for topic, _ in partitions})
    ends = {partition: now.ends[partition] for partition in partitions & now.ends.keys()}
    # A new partition is unread from its beginning on.
    read_to = {**now.begins, **committed}
    lag = history.lag(ends, read_to, now_ms)
    oldest_ms = topics.oldest_ms(source, unread(ends, read_to))
    return lag if oldest_ms is None else replace(lag, since_ms=oldest_ms)


def source_progress(source: StreamSource, view: QueryView) -> Mapping[str, Any]:
    """What Spark's progress has about a source; empty before the first trigger has ended."""
    if view.progress is None:
        return {}
    description = str(view.streams[source.lines[0]].toString())
    sources: Sequence[Mapping[str, Any]] = view.progress["sources"]
    return next((each for each in sources if each["description"] == description), {})


_LENGTH = re.compile(r"; length=(\d+);")
_MODIFIED = re.compile(r"; modification_time=(-?\d+);")


def files_lag(
    session: SparkSession, source: StreamSource, stream: Any, planned: Callable[[], Collection[str]]
) -> SourceLag:
    """The files that wait for `source`, whose `FileStreamSource` in the JVM is `stream`.

    Spark has seen the files of an epoch in progress too: `planned` returns their addresses, which wait until it is
    committed. Raises Spark's error where the folder cannot be listed, and Java's where Spark changes what it has seen
    at the same moment.
    """
    index = file_index(session, source.path, dict(source.identity.options))
    addresses = joined_addresses(session, index)
    each = java_class(session, "java.util.regex.Pattern").compile(SEPARATOR).splitAsStream(addresses)
    unseen = each.collect(java_class(session, "java.util.stream.Collectors").toSet())
    unseen.removeAll(_seen_files(stream).keySet())
    unread = str(java_class(session, "java.lang.String").join(SEPARATOR, unseen))
    # Spark notes what it has seen, then writes it down, both under the lock that this call takes.
    stream.currentLogOffset()
    waiting = {*planned(), *unread.split(SEPARATOR)} - {""}
    return waiting_among(waiting, addresses.split(SEPARATOR), file_states(index) if waiting else ())


def waiting_among(waiting: Collection[str], addresses: Iterable[str], states: Iterable[str]) -> SourceLag:
    """The lag of the files that are in `waiting`; `states` are in the order of `addresses`."""
    found = [state for address, state in zip(addresses, states, strict=True) if address in waiting] if waiting else []
    return SourceLag(
        files=len(found),
        file_bytes=sum(int(_LENGTH.findall(state)[-1]) for state in found),
        since_ms=min((int(_MODIFIED.findall(state)[-1]) for state in found), default=None),
    )


def _seen_files(stream: Any) -> Any:
    """Java's map of the files that a `FileStreamSource` has seen, by address. Spark has no other way to it."""
    seen = stream.seenFiles()
    entries = seen.getClass().getDeclaredField("map")
    entries.setAccessible(True)
    return entries.get(seen)


class UpstreamWatch:
    """One upstream, by its name, in the store `root`. Reads its newest manifest with each call."""

    def __init__(self, root: ObjectStore, name: str, clock: Clock) -> None:
        self._log = UpstreamLog(ManifestChain(stream_folder(root, name), clock), name)

    def lag(self, offset: str | None) -> SourceLag:
        """The lag of a reader whose committed offset is this one, None at the beginning. Raises what reading raises."""
        return unread_epochs(self._log.newest(), None if offset is None else decode(offset))


def unread_epochs(newest: Manifest, at: UpstreamPosition | None) -> SourceLag:
    """What the upstream with this newest manifest has for a reader at `at`, None at the beginning.

    Exact within the epochs that the upstream retains. Below them its openings count as epochs, and the time is that of
    the oldest retained one. A snapshot that is being read counts as one epoch.
    """
    entries = lineage(newest)
    if newest.epoch == EMPTY or not entries:
        return SourceLag(epochs=0)
    if at is None or at.epoch == EMPTY:
        return SourceLag(epochs=newest.statistics.total_epochs, since_ms=entries[0].time_ms)
    unread = [entry for entry in entries if entry.epoch > at.epoch]
    retired = following_count(newest, at.epoch, entries[0].epoch)
    epochs = len(unread) + retired + at.in_snapshot
    oldest = unread[0] if unread else entries[-1]
    return SourceLag(epochs=epochs, since_ms=oldest.time_ms if epochs else None)
