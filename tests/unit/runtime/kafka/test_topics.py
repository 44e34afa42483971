"""What the brokers are asked after an epoch's tasks, and what follows from their answer."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from py4j.protocol import Py4JNetworkError

from dagster_ckpt.errors import CheckpointDeclinedError, IncompatibleStateError
from dagster_ckpt.protocol.epochs.topic_offsets import LossReason, LostOffsets, TopicsNow
from dagster_ckpt.protocol.manifest.manifest import SourceIdentity, SourcePosition
from dagster_ckpt.runtime.declared.sources import KafkaOptions, StreamSource
from dagster_ckpt.runtime.kafka import topics
from dagster_ckpt.runtime.kafka.topics import Topics
from tests.worlds.manifests import a_manifest

TRIPS = SourceIdentity("kafka", "", (("subscribe", "trips"),))
STRICT = KafkaOptions((("bootstrap.servers", "a:9092"),))
LENIENT = replace(STRICT, fails_on_loss=False)
READ = SourcePosition(TRIPS, '{"trips":{"0":100}}', topics=(("trips", "first"),))
NEXT = SourcePosition(TRIPS, '{"trips":{"0":150}}', previous=READ.current)


@dataclass
class FakeBrokers:
    """A cluster with the topic `trips` of one partition, `[begins, ends)`; without an id it does not exist."""

    topic_id: str | None = "first"
    begins: int = 0
    ends: int = 150
    answers: bool = True
    asked: list[str] = field(default_factory=list)

    def ids(self, names: Collection[str]) -> Mapping[str, str]:
        self._ask("ids", names)
        return {} if self.topic_id is None else {"trips": self.topic_id}

    def topics(self, names: Collection[str]) -> TopicsNow:
        self._ask("topics", names)
        if self.topic_id is None:
            return TopicsNow({}, {}, {})
        return TopicsNow({"trips": self.topic_id}, {("trips", 0): self.begins}, {("trips", 0): self.ends})

    def _ask(self, what: str, names: Collection[str]) -> None:
        assert set(names) == {"trips"}
        self.asked.append(what)
        if not self.answers:
            raise Py4JNetworkError("no answer")


@dataclass
class Asked:
    """The topics of a stream with one source, and what they reported as skipped."""

    topics: Topics
    skipped: list[LostOffsets]

    def check(self, before: SourcePosition = READ, after: SourcePosition = NEXT) -> SourcePosition:
        [found] = self.topics.check_positions((before,), (after,))
        return found


def asking(monkeypatch: pytest.MonkeyPatch, brokers: FakeBrokers, options: KafkaOptions = STRICT) -> Asked:
    monkeypatch.setattr(topics, "Brokers", lambda session, connection: brokers)
    skipped: list[LostOffsets] = []
    source = StreamSource(TRIPS, 0, (0,), reads_files=False, kafka=options)
    session: Any = None
    return Asked(Topics("flights", (source,), session, skipped.extend), skipped)


def test_a_topic_that_is_the_same_costs_one_question(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = FakeBrokers()
    assert asking(monkeypatch, brokers).check() == replace(NEXT, topics=READ.topics)
    assert brokers.asked == ["ids"]


def test_where_nothing_was_read_nothing_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = FakeBrokers()
    assert asking(monkeypatch, brokers).check(READ, READ) == READ
    assert brokers.asked == []


def test_where_a_stream_begins_it_takes_the_id_of_the_topic_whatever_was_deleted_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun = SourcePosition(TRIPS, initial='v1\n{"trips":{"0":7}}')
    asked = asking(monkeypatch, FakeBrokers(begins=7), LENIENT)
    assert asked.check(SourcePosition(TRIPS), begun) == replace(begun, topics=READ.topics)
    assert asked.skipped == []


def test_what_is_deleted_right_behind_the_tasks_was_read(monkeypatch: pytest.MonkeyPatch) -> None:
    assert asking(monkeypatch, FakeBrokers(begins=120)).check() == replace(NEXT, topics=READ.topics)


def test_a_stream_that_goes_on_reports_what_may_be_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = asking(monkeypatch, FakeBrokers(begins=120), LENIENT)
    assert asked.check() == replace(NEXT, topics=READ.topics)
    assert asked.skipped == [LostOffsets("trips", 0, LossReason.REMOVED, read_to=100, begin=100, end=120)]


def test_another_topic_of_the_name_is_an_error_however_many_records_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(IncompatibleStateError, match=r"asset=flights, partitions=trips-0 \(read up to offset 100"):
        asking(monkeypatch, FakeBrokers("second", ends=9_000)).check()


def test_a_stream_that_goes_on_with_another_topic_takes_its_id(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = asking(monkeypatch, FakeBrokers("second", ends=9_000), LENIENT)
    assert asked.check().topics == (("trips", "second"),)
    assert [each.reason for each in asked.skipped] == [LossReason.RECREATED]


def test_a_topic_deleted_right_behind_the_tasks_keeps_its_id_so_that_its_successor_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert asking(monkeypatch, FakeBrokers(None)).check() == replace(NEXT, topics=READ.topics)


def test_without_an_answer_nothing_is_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CheckpointDeclinedError, match="asset=flights, reason=Py4JNetworkError"):
        asking(monkeypatch, FakeBrokers(answers=False)).check()


@pytest.mark.parametrize(
    ("brokers", "words"),
    [
        (FakeBrokers(begins=120), "partitions=trips-0 offsets 100 to 119"),
        (FakeBrokers(None), r"does not exist.*partitions=trips-0 \(read up to offset 100\)"),
        (FakeBrokers(ends=9), "deleted and created again, or lost its newest records"),
    ],
)
def test_a_failed_epoch_is_explained_by_what_follows_it(
    monkeypatch: pytest.MonkeyPatch, brokers: FakeBrokers, words: str
) -> None:
    with pytest.raises(IncompatibleStateError, match=words):
        asking(monkeypatch, brokers).topics.diagnose(replace(a_manifest(), sources=(READ,)), has_failed_often=True)


def test_a_topic_is_gone_only_if_brokers_that_may_have_just_started_do_not_name_it_again_and_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = asking(monkeypatch, FakeBrokers(None))
    asked.topics.diagnose(replace(a_manifest(), sources=(READ,)), has_failed_often=False)
    assert asked.topics._topics[0].brokers.asked == ["topics"]  # type: ignore[attr-defined]


EMPTY = SourcePosition(TRIPS, initial="v1\n{}")


def test_no_topic_at_all_is_not_where_a_stream_begins_that_begins_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    at_end = replace(STRICT, begins_at_end=True)
    with pytest.raises(CheckpointDeclinedError, match=r"named no topic.*topics=kafka subscribe=trips"):
        asking(monkeypatch, FakeBrokers(), at_end).check(SourcePosition(TRIPS), EMPTY)
    # From their beginning all are read, whenever they are found; and a stream that has begun goes on.
    assert asking(monkeypatch, FakeBrokers()).check(SourcePosition(TRIPS), EMPTY) == EMPTY
    assert asking(monkeypatch, FakeBrokers(), at_end).check(EMPTY, EMPTY) == EMPTY


@pytest.mark.parametrize(
    ("brokers", "options"),
    [(FakeBrokers(), STRICT), (FakeBrokers(answers=False), STRICT), (FakeBrokers(begins=120), LENIENT)],
)
def test_a_failed_epoch_may_have_another_cause(
    monkeypatch: pytest.MonkeyPatch, brokers: FakeBrokers, options: KafkaOptions
) -> None:
    asking(monkeypatch, brokers, options).topics.diagnose(replace(a_manifest(), sources=(READ,)), has_failed_often=True)
