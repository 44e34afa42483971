"""Micro-batches without a query of Spark's: one at a time, at an interval, until the input or the loop ends."""

import threading
from collections.abc import Iterator
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException

from dagster_ckpt.clock import SystemClock
from dagster_ckpt.runtime.driver import source_loop
from dagster_ckpt.runtime.driver.source_loop import SourceLoop

WAIT_S = 20.0
LONG_MS = 3_600_000


class Sources:
    """Sources that have so many micro-batches, and then nothing."""

    streams = ()

    def __init__(self, batches: int) -> None:
        self.batches = batches
        self.asked = 0
        self.until_now: bool | None = None

    def begin(self, *, until_now: bool) -> None:
        self.until_now = until_now

    def next_batch(self) -> int | None:
        self.asked += 1
        return self.asked if self.asked <= self.batches else None


@pytest.fixture(autouse=True)
def _no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_loop, "as_active", nullcontext)


@pytest.fixture
def loops() -> Iterator[list[SourceLoop]]:
    made: list[SourceLoop] = []
    yield made
    for each in made:
        each.close(0)
        each.stop()


def loop(loops: list[SourceLoop], sources: object, work: object, interval_ms: int | None) -> SourceLoop:
    session = SimpleNamespace(sparkContext=SimpleNamespace(setInterruptOnCancel=lambda _: None))
    made = SourceLoop(session, sources, work, interval_ms, SystemClock())  # type: ignore[arg-type]
    loops.append(made)
    made.start()
    return made


def test_without_an_interval_it_ends_with_the_input(loops: list[SourceLoop]) -> None:
    worked: list[int] = []
    sources = Sources(3)
    made = loop(loops, sources, worked.append, None)
    assert made.wait(WAIT_S)
    assert (worked, sources.asked, sources.until_now) == ([1, 2, 3], 4, True)
    made.raise_failure()
    assert made.is_at_end_of_input()


def test_with_one_it_goes_on_until_it_is_closed(loops: list[SourceLoop]) -> None:
    done = threading.Event()
    made = loop(loops, sources := Sources(1), lambda _: done.set(), LONG_MS)
    assert done.wait(WAIT_S)
    assert made.is_idle(WAIT_S), "the epoch has ended"
    assert not made.wait(0.05), "it waits for the next look"
    assert made.close(WAIT_S)
    made.stop()
    assert made.wait(0), "it did not sleep to the end of the interval"
    assert (sources.asked, sources.until_now) == (1, False)
    assert not made.is_at_end_of_input()


def test_what_comes_while_it_has_looked_is_found(loops: list[SourceLoop]) -> None:
    worked = threading.Event()
    sources = Sources(0)
    made = loop(loops, sources, lambda _: worked.set(), 1)
    assert not worked.wait(0.1)
    sources.batches = 1 << 30
    assert worked.wait(WAIT_S)
    assert made.close(WAIT_S)


def test_nothing_begins_once_it_is_closed(loops: list[SourceLoop]) -> None:
    """A micro-batch that was planned then is dropped: nothing of it is kept."""
    asked, go_on, worked = threading.Event(), threading.Event(), list[int]()

    class Slow(Sources):
        def next_batch(self) -> int | None:
            asked.set()
            go_on.wait(WAIT_S)
            return super().next_batch()

    made = loop(loops, Slow(1), worked.append, None)
    assert asked.wait(WAIT_S)
    assert made.close(WAIT_S), "to ask a source is no epoch"
    go_on.set()
    made.stop()
    assert made.wait(WAIT_S)
    assert worked == []
    assert not made.is_at_end_of_input()


def test_between_two_epochs_something_else_can_run(loops: list[SourceLoop]) -> None:
    at_work, go_on, ran = threading.Event(), threading.Event(), list[str]()

    def work(_: int) -> None:
        at_work.set()
        go_on.wait(WAIT_S)

    made = loop(loops, Sources(1), work, LONG_MS)
    assert at_work.wait(WAIT_S)
    made.run_if_idle(lambda: ran.append("beside an epoch"))
    assert not made.close(0), "the epoch is in progress"
    go_on.set()
    assert made.is_idle(WAIT_S)
    made.run_if_idle(lambda: ran.append("after it"))
    assert ran == ["after it"]


def test_a_failure_ends_it(loops: list[SourceLoop]) -> None:
    def work(_: int) -> None:
        raise ZeroDivisionError("the work")

    made = loop(loops, Sources(3), work, 1)
    assert made.wait(WAIT_S)
    with pytest.raises(ZeroDivisionError, match="the work"):
        made.raise_failure()


def test_what_a_source_raises_is_said_as_a_query_says_it(loops: list[SourceLoop]) -> None:
    class Gone(Sources):
        def next_batch(self) -> int | None:
            raise AnalysisException("[PATH_NOT_FOUND] Path does not exist: file:/gone.")

    made = loop(loops, Gone(1), print, 1)
    assert made.wait(WAIT_S)
    with pytest.raises(StreamingQueryException, match="PATH_NOT_FOUND"):
        made.raise_failure()
