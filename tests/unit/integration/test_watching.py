from dagster_ckpt.integration.watching import TICK_MS_MAX, Memory, Watch, seen_lease, seen_run


def test_a_lease_is_silent_for_as_long_as_its_counter_stands_still() -> None:
    watch = seen_lease(Watch(), term=3, counter=0, elapsed_ms=5_000)
    assert watch.silent_ms == 0
    watch = seen_lease(seen_lease(watch, 3, 0, 5_000), 3, 0, 5_000)
    assert watch.silent_ms == 10_000
    assert seen_lease(watch, 3, 1, 5_000).silent_ms == 0
    assert seen_lease(watch, 4, 0, 5_000).silent_ms == 0


def test_a_run_is_the_same_for_as_long_as_nothing_of_it_changes() -> None:
    watch = seen_run(seen_run(Watch(), "a started", 5_000), "a started", 5_000)
    assert watch.same_ms == 5_000
    assert seen_run(watch, "a failed", 5_000).same_ms == 0


def test_a_clock_that_jumps_counts_for_one_tick_at_most() -> None:
    memory = Memory(now_ms=1_000_000, watches={})
    assert memory.elapsed_ms(1_005_000) == 5_000
    assert memory.elapsed_ms(1_000_000 + 3_600_000) == TICK_MS_MAX
    assert memory.elapsed_ms(900_000) == 0


def test_the_memory_survives_in_a_cursor() -> None:
    memory = Memory(5, {"delay/by carrier": Watch(3, 2, 1_000, "run started", 7)})
    assert Memory.read(memory.write(), now_ms=9) == memory


def test_a_cursor_nobody_understands_is_an_empty_memory() -> None:
    for cursor in (None, "", "{}", "[]", "nonsense", '{"now_ms": 1, "watches": {"s": {"unknown": 1}}}'):
        assert Memory.read(cursor, now_ms=9) == Memory(9, {})
