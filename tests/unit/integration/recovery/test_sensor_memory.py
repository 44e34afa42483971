from dataclasses import replace

from dagster_ckpt.ids import Term
from dagster_ckpt.integration.recovery.sensor_memory import TICK_MS_MAX, LeaseSeen, Memory
from dagster_ckpt.protocol.lease import Watch

SEEN = LeaseSeen(term=3, counter=2, lease_since_ms=1_000, run="run started", run_since_ms=7)
MEMORY = Memory(now_ms=1_000_000, watched_ms=40_000, streams={"delay/by carrier": SEEN})


def test_the_memory_survives_in_a_cursor_and_its_clock_goes_on() -> None:
    later = Memory.read(MEMORY.write(), now_ms=1_005_000)
    assert later == replace(MEMORY, now_ms=1_005_000, watched_ms=45_000)


def test_a_clock_that_jumps_counts_for_one_tick_at_most() -> None:
    assert Memory.read(MEMORY.write(), now_ms=1_000_000 + 3_600_000).watched_ms == 40_000 + TICK_MS_MAX
    assert Memory.read(MEMORY.write(), now_ms=900_000).watched_ms == 40_000


def test_an_unreadable_cursor_is_an_empty_memory() -> None:
    for cursor in (
        None,
        "",
        "{}",
        "[]",
        "nonsense",
        '{"now_ms": 1, "watched_ms": 2, "streams": {"s": {"unknown": 1}}}',
    ):
        assert Memory.read(cursor, now_ms=9) == Memory(9, 0, {})


def test_a_run_is_the_same_for_as_long_as_nothing_of_it_changes() -> None:
    lease = Watch(Term(3), 2, 1_000)
    assert MEMORY.see("delay/by carrier", lease, "run started").run_since_ms == 7
    assert MEMORY.see("delay/by carrier", lease, "run failed").run_since_ms == 40_000
    assert MEMORY.see("another", lease, "run started").run_since_ms == 40_000
