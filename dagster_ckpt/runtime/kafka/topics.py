"""The topics that a stream reads: records that are lost, and the age of unread ones.

Spark itself detects missing records, and fails or, with `failOnDataLoss=false`, goes on without telling the driver. It
does not detect a topic that was deleted and created again with as many records. So the brokers are queried after an
epoch's tasks have read and before it is committed: what the topics still have then, under the same ids, the tasks have
read. A crash in between repeats all of it.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from dagster_ckpt.errors import CheckpointDeclinedError, IncompatibleStateError, OutsideCodeError, StoreUnavailableError
from dagster_ckpt.protocol.epochs.topic_offsets import (
    LossReason,
    LostOffsets,
    Offsets,
    TopicsNow,
    find_lost,
    next_offsets,
)
from dagster_ckpt.protocol.manifest.manifest import Manifest, SourcePosition
from dagster_ckpt.runtime.declared.sources import KafkaOptions, StreamSource, positions_by_source, source_text
from dagster_ckpt.runtime.kafka.brokers import Brokers, reason_text
from dagster_ckpt.runtime.kafka.group_commits import GroupCommits

_LOG = logging.getLogger(__name__)

_ERRORS: Mapping[LossReason, str] = {
    LossReason.REMOVED: "records that the stream has not read were deleted from the topic, by its retention or by "
    "hand. To keep the state and go on without them, set failOnDataLoss=false on the source",
    LossReason.GONE: "a topic or partition that the stream reads does not exist, or its user may not see it. Create it "
    "again, or restore its permissions",
    LossReason.RECREATED: "the topic is not the one that the stream has read: it was deleted and created again, or "
    "lost its newest records. To read all of it, go back to epoch 0 (`dagster-ckpt rollback`), or give the asset a new "
    "key if the stream did not begin at offset 0. To keep the state and go on at the same offsets, set "
    "failOnDataLoss=false on the source",
}


class SourceUnavailableError(StoreUnavailableError):
    """A Kafka cluster that the stream reads does not answer. Nothing is lost: the same step may be tried again."""


class TopicGoneError(OutsideCodeError, IncompatibleStateError):
    """A topic or partition that the stream reads does not exist, or its user may not see it."""


@dataclass(frozen=True)
class _Topics:
    """The topics of one source. `at` is its place among the stream's sources."""

    at: int
    source: StreamSource
    options: KafkaOptions
    brokers: Brokers


@dataclass
class Topics:
    """The topics of all of a stream's Kafka sources. `on_skipped` is called before an epoch that skips records."""

    asset: str
    sources: Sequence[StreamSource]
    session: SparkSession
    on_skipped: Callable[[Sequence[LostOffsets]], None]
    _topics: tuple[_Topics, ...] = field(init=False)
    _groups: GroupCommits = field(init=False)

    def __post_init__(self) -> None:
        self._groups = GroupCommits(self.asset, self.sources, self.session)
        self._topics = tuple(
            _Topics(at, source, source.kafka, Brokers(self.session, source.kafka.connection))
            for at, source in enumerate(self.sources)
            if source.kafka is not None
        )

    def check_positions(
        self, before: Sequence[SourcePosition], after: Sequence[SourcePosition]
    ) -> tuple[SourcePosition, ...]:
        """The positions `after` an epoch, with the ids of their topics, if its tasks can have read all of it.

        Raises `IncompatibleStateError` for lost records; with `failOnDataLoss=false` they are reported instead. Raises
        `CheckpointDeclinedError` where the brokers do not answer.
        """
        try:
            return self._check(before, after)
        except (Py4JError, OSError) as error:
            raise CheckpointDeclinedError(
                "Kafka did not confirm that its topics still have the records of the epoch: nothing of it was "
                f"committed. asset={self.asset}, reason={reason_text(error)}"
            ) from None

    def _check(self, before: Sequence[SourcePosition], after: Sequence[SourcePosition]) -> tuple[SourcePosition, ...]:
        checked = list(after)
        for each in self._topics:
            was, is_now = before[each.at], after[each.at]
            read_to, found = next_offsets(was), next_offsets(is_now)
            if each.options.begins_at_end and was.initial is None and is_now.initial is not None and not found:
                raise CheckpointDeclinedError(
                    "Kafka named no topic that the stream reads, so where it begins (startingOffsets=latest) is not "
                    "known, and nothing was committed. Create a topic that matches, or begin at earliest. "
                    f"asset={self.asset}, topics={source_text(each.source.identity)}"
                )
            if found == read_to:
                continue
            names, known = {topic for topic, _ in (*read_to, *found)}, dict(was.topics)
            ids = each.brokers.ids(names)
            # With failOnDataLoss=true Spark has read all of a topic whose id is the same, or would have failed.
            # Records that are deleted after they were read are not lost.
            is_suspect = not each.options.fails_on_loss or any(
                ids.get(topic, known_id) != known_id for topic, known_id in known.items()
            )
            if read_to and is_suspect:
                self._judge(each, find_lost(read_to, known, each.brokers.topics(names), found))
            # A topic that was deleted meanwhile keeps the id under which it was read.
            topics = {**known, **ids}
            read = sorted({topic for topic, _ in found} & topics.keys())
            checked[each.at] = replace(is_now, topics=tuple((topic, topics[topic]) for topic in read))
        return tuple(checked)

    def _judge(self, topics: _Topics, missing: Sequence[LostOffsets]) -> None:
        """Raise for records that the epoch's tasks cannot have read; with `failOnDataLoss=false`, report them."""
        if topics.options.fails_on_loss:
            if recreated := [each for each in missing if each.reason is LossReason.RECREATED]:
                raise self._error(recreated)
        elif missing:
            _LOG.warning(
                "records were deleted before the stream has read all of them (failOnDataLoss=false): it goes on "
                "without those that it had not read. asset=%s, partitions=%s",
                self.asset,
                _texts(missing),
            )
            self.on_skipped(missing)

    def diagnose(self, manifest: Manifest, *, has_failed_often: bool) -> None:
        """Raise `IncompatibleStateError` if what follows `manifest` is lost; nothing where the brokers do not answer.

        Call it after an epoch has failed: no retry restores records. Only `has_failed_often` makes a topic that the
        brokers do not name a topic that is gone: one that has just started may not know its topics yet.
        """
        positions = positions_by_source(self.sources, manifest)
        for each in self._topics:
            position = positions[each.at]
            read_to = next_offsets(position)
            if not read_to or not each.options.fails_on_loss:
                continue
            try:
                now = each.brokers.topics({topic for topic, _ in read_to})
            except (Py4JError, OSError) as error:
                _LOG.info("Kafka does not answer. asset=%s, reason=%s", self.asset, reason_text(error))
                continue
            missing = [
                each
                for each in find_lost(read_to, dict(position.topics), now, {})
                if has_failed_often or each.reason is not LossReason.GONE
            ]
            if missing:
                raise self._error(missing)

    def check_answers(self, error: Exception) -> None:
        """Raise `error` as `SourceUnavailableError` if a cluster does not answer now."""
        for each in self._topics:
            try:
                each.brokers.ask()
            except (Py4JError, OSError):
                raise SourceUnavailableError(f"Kafka does not answer. {error}") from error.__cause__

    def now(self, source: StreamSource, names: Collection[str]) -> TopicsNow:
        """The offsets and ids of these topics of the source now."""
        return self._brokers(source).topics(names)

    def oldest_ms(self, source: StreamSource, unread: Offsets) -> int | None:
        """The timestamp of the oldest unread record, in ms since the Unix epoch, as far as records have timestamps."""
        return self._brokers(source).oldest_ms(unread) if unread else None

    def on_commit(self, manifest: Manifest) -> None:
        """`manifest` is the newest: write its positions to the consumer groups that the user names, soon."""
        self._groups.commit(manifest)

    def end(self) -> None:
        """Write what is due to the groups, which may take 5 s, and close the connections."""
        self._groups.end()
        for each in self._topics:
            each.brokers.close()

    def _brokers(self, source: StreamSource) -> Brokers:
        [brokers] = [each.brokers for each in self._topics if each.source is source]
        return brokers

    def _error(self, missing: Sequence[LostOffsets]) -> IncompatibleStateError:
        worst = next(reason for reason in reversed(LossReason) if any(each.reason is reason for each in missing))
        partitions = _texts(each for each in missing if each.reason is worst)
        kind = TopicGoneError if worst is LossReason.GONE else IncompatibleStateError
        return kind(f"{_ERRORS[worst]}. asset={self.asset}, partitions={partitions}")


def _texts(missing: Iterable[LostOffsets]) -> str:
    return "; ".join(map(str, missing))
