"""A writer that rests finds out that another took over: soon, at little cost, and never wrongly."""

import pytest

from dagster_ckpt.errors import FencedError, StoreUnavailableError
from dagster_ckpt.ids import EMPTY, Term, Version
from dagster_ckpt.protocol.object_names import TRIMMED, manifest_name
from dagster_ckpt.storage.chain.manifest_chain import ManifestChain
from dagster_ckpt.storage.operations.manual_opening import roll_back
from dagster_ckpt.storage.stores.object_store import ObjectStore
from dagster_ckpt.storage.writer.opening import Takeover, open_manifest
from dagster_ckpt.storage.writer.stream_writer import StreamWriter, TakeoverWatch
from tests.worlds.clock import StillClock
from tests.worlds.faulty_store import Call, Fault, FaultyStore
from tests.worlds.streams import a_store, an_edit, an_opening


class World:
    """A resting writer, which comes by five times a second, and a store that tells what it was asked."""

    def __init__(self, interval_ms: int = 5_000) -> None:
        self.store = FaultyStore(a_store())
        self.clock = StillClock()
        self.writer = self.open("run-1", self.store)
        self.watch = TakeoverWatch(self.clock, interval_ms)
        self.store.calls.clear()

    def open(self, run: str, store: ObjectStore) -> StreamWriter:
        chain = ManifestChain(store, self.clock)
        opening = an_opening(run, take_over=Takeover.ALWAYS)
        return StreamWriter(chain, opening, open_manifest(chain, opening))

    def another(self) -> StreamWriter:
        return self.open("run-2", self.store.inner)

    def rest(self, seconds: int) -> None:
        for _ in range(seconds * 5):
            self.watch.look(self.writer)
            self.clock.sleep_ms(200)

    def answers(self, fault: Fault) -> None:
        self.store.decide = lambda _: fault


@pytest.mark.parametrize(("interval_ms", "looks"), [(100, 59), (5_000, 11), (3_600_000, 5)])
def test_a_look_is_two_existence_checks_and_due_every_interval_but_within_bounds(interval_ms: int, looks: int) -> None:
    world = World(interval_ms)
    world.rest(60)
    assert world.store.calls == looks * [
        Call("exists", manifest_name(Version(2))),
        Call("exists", manifest_name(Version(1))),
    ]


def test_a_writer_that_commits_more_often_does_not_look_at_all() -> None:
    world = World()
    for _ in range(20):
        world.writer.commit(an_edit(world.writer.manifest))
        world.store.calls.clear()
        world.rest(4)
        assert world.store.calls == []


def test_another_writers_term_is_noticed_at_the_next_look() -> None:
    world = World()
    world.writer.commit(an_edit(world.writer.manifest))
    world.rest(60)
    world.another()
    with pytest.raises(FencedError, match=r"another writer took over the stream.* version=2, mine=1"):
        world.rest(6)


def test_a_rollback_by_hand_is_another_writer() -> None:
    world = World()
    world.writer.commit(an_edit(world.writer.manifest))
    roll_back(ManifestChain(world.store.inner, world.clock), EMPTY, Takeover.ALWAYS)
    with pytest.raises(FencedError):
        world.rest(6)


def test_ones_own_next_term_is_none() -> None:
    world = World()
    world.rest(10)
    world.writer = world.writer.reopen()
    world.rest(60)
    assert world.writer.term == Term(2)


def test_an_unanswered_commit_that_exists_is_no_takeover() -> None:
    world = World()
    world.answers(Fault.LOST_REPLY)
    with pytest.raises(StoreUnavailableError):
        world.writer.commit(an_edit(world.writer.manifest))
    world.answers(Fault.NONE)
    assert world.store.inner.exists(manifest_name(Version(2)))
    world.rest(60)
    assert world.writer.reopen().manifest.epoch == 2


def test_a_store_that_does_not_answer_is_no_verdict_and_is_asked_again() -> None:
    world = World()
    world.another()
    world.answers(Fault.LOST_REQUEST)
    world.rest(60)
    world.answers(Fault.NONE)
    with pytest.raises(FencedError):
        world.rest(6)


def test_a_stream_that_is_not_to_be_found_is_no_verdict() -> None:
    world = World()
    world.writer.commit(an_edit(world.writer.manifest))
    world.writer.heartbeat.beat()
    world.store.inner.delete(manifest_name(Version(2)))
    world.rest(60)
    for name in [*world.store.inner.list("manifest"), *world.store.inner.list("lease")]:
        world.store.inner.delete(name)
    world.store.calls.clear()
    world.rest(60)
    assert Call("list", "manifest") in world.store.calls, "it was looked for"


def test_a_sleeper_whose_numbers_were_freed_learns_that_others_went_on() -> None:
    world = World()
    other = world.another()
    for _ in range(3):
        other.commit(an_edit(other.manifest))
    other.heartbeat.beat()
    for version in (1, 2, 3):
        world.store.inner.delete(manifest_name(Version(version)))
    world.store.inner.put(TRIMMED, b"")
    with pytest.raises(FencedError):
        world.rest(6)
