"""Committed offsets on their way to a consumer group, in the background."""

import threading
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from dagster_ckpt.protocol.epochs.topic_offsets import Offsets
from dagster_ckpt.protocol.manifest.manifest import Manifest, SourceIdentity, SourcePosition
from dagster_ckpt.runtime.declared.sources import KafkaOptions, StreamSource
from dagster_ckpt.runtime.kafka import group_commits
from dagster_ckpt.runtime.kafka.group_commits import GroupCommits
from tests.worlds.manifests import a_manifest

TRIPS = SourceIdentity("kafka", "", (("subscribe", "trips"),))


@dataclass
class SlowBrokers:
    """A cluster that answers once `may_answer` is set."""

    written: list[tuple[str, Offsets]] = field(default_factory=list)
    asked: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    may_answer: threading.Event = field(default_factory=threading.Event)
    closed: bool = False

    def commit(self, group: str, offsets: Offsets) -> None:
        self.asked.release()
        assert self.may_answer.wait(10)
        self.written.append((group, offsets))

    def close(self) -> None:
        self.closed = True


def groups(monkeypatch: pytest.MonkeyPatch, brokers: SlowBrokers, group: str = "delays") -> GroupCommits:
    monkeypatch.setattr(group_commits, "Brokers", lambda session, connection: brokers)
    source = StreamSource(TRIPS, 0, (0,), reads_files=False, kafka=KafkaOptions((), group=group))
    session: Any = None
    return GroupCommits("flights", (source,), session)


def read_to(offset: int) -> Manifest:
    return replace(a_manifest(), sources=(SourcePosition(TRIPS, f'{{"trips":{{"0":{offset}}}}}'),))


def test_a_slow_group_holds_nobody_up_and_gets_the_newest_offsets_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = SlowBrokers()
    found = groups(monkeypatch, brokers)
    found.commit(read_to(1))
    assert brokers.asked.acquire(timeout=10)
    for offset in range(2, 100):
        found.commit(read_to(offset))
    brokers.may_answer.set()
    found.end()
    assert brokers.written[0] == ("delays", {("trips", 0): 1})
    assert brokers.written[-1] == ("delays", {("trips", 0): 99})
    assert len(brokers.written) <= 4, "not each of those in between"
    assert brokers.closed


def test_offsets_of_a_quiet_stream_are_written_again_before_the_brokers_forget_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(group_commits, "_AGAIN_S", 0.01)
    brokers = SlowBrokers()
    brokers.may_answer.set()
    found = groups(monkeypatch, brokers)
    found.commit(read_to(7))
    for _ in range(3):
        assert brokers.asked.acquire(timeout=10)
    found.end()
    assert {str(offsets) for _, offsets in brokers.written} == {"{('trips', 0): 7}"}


def test_without_a_group_there_is_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    before = threading.active_count()
    found = groups(monkeypatch, SlowBrokers(), group="")
    found.commit(read_to(1))
    assert threading.active_count() == before
    found.end()
