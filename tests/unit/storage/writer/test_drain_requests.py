"""A writer looks out for drain requests: often enough, and not more often."""

import pytest

from dagster_ckpt.ids import Epoch, Term
from dagster_ckpt.protocol.drain_request import DRAIN, DrainRequest
from dagster_ckpt.protocol.object_names import request_name
from dagster_ckpt.storage.writer.drain_requests import DrainWatch, read_drain, write_drain
from tests.worlds.clock import StillClock
from tests.worlds.faulty_store import Call, Fault, FaultyStore
from tests.worlds.streams import a_holder, a_store


class World:
    """A writer in term 5 and up, and a store that counts what it is asked."""

    def __init__(self, interval_ms: int = 5_000) -> None:
        self.store = FaultyStore(a_store())
        self.clock = StillClock()
        self.looks = 0
        self.fault = Fault.NONE
        self.store.decide = self._decide
        self.watch = DrainWatch(self.store, self.clock, a_holder("run-1"), Term(5), interval_ms)

    def _decide(self, call: Call) -> Fault:
        self.looks += call.verb == "get"
        return self.fault if call.verb == "get" else Fault.NONE

    def ask(self, term: int = 6, run: str = "run-1") -> None:
        write_drain(self.store, DrainRequest(Term(term), run, 0, "build-3"))

    def looks_in(self, seconds: int, epochs_per_second: int = 0) -> int:
        """How often the store is asked in that time, by a writer that comes by five times a second."""
        before = self.looks
        for tick in range(seconds * 5):
            assert self.watch.reason(Epoch(tick * epochs_per_second // 5)) is None
            self.clock.sleep_ms(200)
        return self.looks - before


def test_a_request_is_a_reason_to_end_for_good() -> None:
    world = World()
    world.ask()
    assert world.watch.reason(Epoch(2)) == "drained, as was asked for on build-3"
    world.store.delete(request_name(DRAIN))
    world.clock.sleep_ms(60_000)
    assert world.watch.reason(Epoch(3)) == "drained, as was asked for on build-3"


def test_a_request_to_the_writer_before_is_none() -> None:
    world = World()
    world.ask(term=4, run="run-0")
    assert world.looks_in(20) > 0


def test_a_damaged_request_is_none() -> None:
    world = World()
    world.ask()
    world.store.put(request_name(DRAIN), b"{}")
    assert read_drain(world.store) is None
    assert world.watch.reason(Epoch(2)) is None


@pytest.mark.parametrize(("interval_ms", "looks"), [(100, 60), (5_000, 12), (3_600_000, 6)])
def test_without_an_epoch_it_looks_every_interval_but_within_bounds(interval_ms: int, looks: int) -> None:
    assert World(interval_ms).looks_in(60) == looks


def test_after_an_epoch_it_looks_at_once_but_only_every_second() -> None:
    world = World()
    assert world.watch.reason(Epoch(2)) is None
    world.ask()
    world.clock.sleep_ms(1_000)
    assert world.watch.reason(Epoch(2)) is None, "nothing has happened since the last look"
    assert world.watch.reason(Epoch(3)) is not None
    assert World().looks_in(60, epochs_per_second=5) == 60


def test_a_store_that_does_not_answer_is_asked_again() -> None:
    world = World()
    world.ask()
    world.fault = Fault.LOST_REQUEST
    assert world.watch.reason(Epoch(2)) is None
    world.fault = Fault.NONE
    world.clock.sleep_ms(5_000)
    assert world.watch.reason(Epoch(2)) is not None
