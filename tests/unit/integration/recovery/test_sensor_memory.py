from dataclasses import replace

from dagster_ckpt.ids import Term
from dagster_ckpt.integration.recovery.sensor_memory import TICK_MS_MAX, LeaseSeen, Memory, run_text
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
    assert MEMORY.see("delay/by carrier", "", lease, "run started").run_since_ms == 7
    assert MEMORY.see("delay/by carrier", "", lease, "run failed").run_since_ms == 40_000
    assert MEMORY.see("another", "", lease, "run started").run_since_ms == 40_000


def test_a_stream_that_begins_anew_in_its_folder_is_another_one() -> None:
    lease = Watch(Term(1), 1, 40_000)
    first = replace(MEMORY, streams={}).see("s", "c5bc22a1663c", lease, "8a1b2c3d started 1", "12")
    later = Memory.read(replace(MEMORY, watched_ms=50_000, streams={"s": first}).write(), 1_000_000)
    assert later.of("s", "c5bc22a1663c") == first
    assert later.of("s", "0c88d1f33a1b") is None
    assert later.see("s", "0c88d1f33a1b", lease, "8a1b2c3d started 1", "12").run_since_ms == 50_000
    unknown = replace(later, streams={"s": replace(first, uuid="")})
    assert unknown.of("s", "0c88d1f33a1b") is not None, "written by an earlier release"


def test_a_term_that_another_run_holds_since_a_restore_is_watched_from_now_on() -> None:
    lease = Watch(Term(3), 2, 1_000)
    first = replace(MEMORY, streams={}).see("s", "", lease, "run started", "12", "8a1b2c3d-0000")
    known = Memory.read(replace(MEMORY, watched_ms=50_000, streams={"s": first}).write(), 1_000_000).of("s", "")
    assert known == first
    assert known is not None
    assert known.is_held_by("8a1b2c3d-0000")
    assert not known.is_held_by("99999999-0000")
    assert replace(known, holder="").is_held_by("99999999-0000"), "written by an earlier release"


def test_the_heartbeat_of_another_run_is_another_one() -> None:
    lease = Watch(Term(3), 2, 1_000)
    first = MEMORY.see("s", "", lease, "8a1b2c3d started 1", "12")
    later = replace(MEMORY, watched_ms=50_000, streams={"s": first})
    assert later.see("s", "", lease, "8a1b2c3d started 2", "12").start_since_ms == 40_000
    assert later.see("s", "", lease, "8a1b2c3d started 2", "13").start_since_ms == 50_000
    assert later.see("s", "", lease, "99999999 started 2", "12").start_since_ms == 50_000


def test_a_stream_takes_at_most_220_bytes_of_a_cursor_that_people_can_read() -> None:
    month_ms = 2_592_000_000
    run = run_text("8a1b2c3d-0000-4000-8000-000000000000", "started", MEMORY)
    seen = LeaseSeen(
        *(123_456, 1_234_567, month_ms, run, month_ms, "1234", month_ms, 123_460, 1_700_000_000_000),
        uuid="c5bc22",
        holder="8a1b2c3d",
    )
    memory = Memory(1_700_000_000_000, month_ms, {f"shop/orders_by_customer_{number}": seen for number in range(50)})
    written = memory.write()
    assert len(written) < 50 * 220
    assert (
        '"shop/orders_by_customer_7":{"term":123456,"beat":[1234567,2592000000,"8a1b2c3d"],"run":["8a1b2c3d started'
        in written
    )
    assert Memory.read(written, memory.now_ms) == memory
    assert '"start"' not in MEMORY.write(), "there is no heartbeat"


def test_a_cursor_of_an_earlier_release_begins_anew() -> None:
    old = (
        '{"now_ms": 1000000, "watched_ms": 40000, "streams": {"s": {"term": 3, "counter": 2, "lease_since_ms": 1000, '
        '"run": "8a1b2c3d-0000 RunView(state=<RunState.STARTED: \'started\'>)", "run_since_ms": 7, "start": "", '
        '"start_since_ms": 9}}}'
    )
    assert Memory.read(old, now_ms=1_000_000) == Memory(1_000_000, 0, {})


def test_a_run_is_spelled_otherwise_where_anything_of_it_has_changed() -> None:
    first = run_text("8a1b2c3d-1", "started", {"attempt": 1})
    assert first == run_text("8a1b2c3d-1", "started", {"attempt": 1})
    others = [("8a1b2c3d-2", "started", {"attempt": 1}), ("8a1b2c3d-1", "started", {"attempt": 2})]
    assert first not in {run_text(*other) for other in others}
