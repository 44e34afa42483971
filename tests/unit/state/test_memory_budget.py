import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagster_ckpt.errors import StoreUnavailableError
from dagster_ckpt.state.memory_budget import MemoryBudget

SOON_MS = 30


def test_tables_are_flushed_above_the_soft_limit_and_not_before() -> None:
    budget = MemoryBudget(400)
    budget.hold("table", 100)
    assert not budget.must_flush("table")
    budget.hold("table", 101)
    assert budget.must_flush("table")
    budget.hold("table", 0)
    assert budget.held_bytes == 0
    assert not budget.must_flush("table")


@pytest.mark.parametrize("limit_bytes", [8 << 30, 1 << 34, 1 << 50])
def test_however_much_memory_there_is_a_column_fits_into_offsets_of_32_bits(limit_bytes: int) -> None:
    budget = MemoryBudget(limit_bytes)
    assert budget.chunk_bytes == 64 << 20
    assert budget.soft_bytes + budget.chunk_bytes < 2**31
    budget.hold("table", (1 << 30) + 1)
    assert budget.must_flush("table")


def test_a_small_table_is_left_alone_while_another_one_holds_the_memory() -> None:
    budget = MemoryBudget(400)
    budget.hold("great", 190)
    budget.hold("small", 10)
    assert budget.must_flush("great")
    assert not budget.must_flush("small")


@given(st.lists(st.integers(0, 100), min_size=1), st.integers(0, 400))
def test_above_the_soft_limit_some_table_must_be_flushed(tables: list[int], limit: int) -> None:
    budget = MemoryBudget(limit)
    for number, bytes_ in enumerate(tables):
        budget.hold(number, bytes_)
    is_above = sum(tables) > limit // 4
    assert any(budget.must_flush(number) for number in range(len(tables))) == is_above


def test_a_write_waits_until_others_have_ended() -> None:
    budget = MemoryBudget(100)
    first = budget.begin_write("first", 80, SOON_MS)
    with pytest.raises(StoreUnavailableError, match=r"for=second, bytes=30, limit=100"):
        budget.begin_write("second", 30, SOON_MS)
    threading.Timer(0.02, first.give_back).start()
    budget.begin_write("second", 30, timeout_ms=10_000).give_back()
    assert budget.held_bytes == 0


def test_uncounted_work_waits_until_it_fits_beside_files_in_flight() -> None:
    budget = MemoryBudget(100)
    budget.hold("table", 25)
    budget.make_room("nothing is on its way", 1000, SOON_MS)
    file = budget.begin_write("file", 25, SOON_MS)
    budget.make_room("it fits", 50, SOON_MS)
    with pytest.raises(StoreUnavailableError, match=r"for=a run, bytes=51, limit=100"):
        budget.make_room("a run", 51, SOON_MS)
    threading.Timer(0.02, file.give_back).start()
    budget.make_room("a run", 51, timeout_ms=10_000)
    assert budget.held_bytes == 25


@pytest.mark.parametrize("held", [0, 50, 1000])
def test_7_what_is_larger_than_the_limit_goes_ahead_alone(held: int) -> None:
    budget = MemoryBudget(10)
    budget.hold("table", held)
    write = budget.begin_write("large", 10**9, SOON_MS)
    assert budget.held_bytes == 10**9 + held
    write.shrink_to(10**8)
    assert budget.held_bytes == 10**8 + held
    write.give_back()
    write.give_back()
    assert budget.held_bytes == held


def test_what_waits_is_released_by_the_last_to_end() -> None:
    budget = MemoryBudget(10)
    first = budget.begin_write("first", 20, SOON_MS)
    entered = []

    def write(number: int) -> None:
        mine = budget.begin_write(f"{number}", 20, 10_000)
        entered.append(budget.held_bytes)
        mine.give_back()

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    first.give_back()
    for thread in threads:
        thread.join(10)
    assert entered == [20] * 8, "one at a time, since no two have room"
    assert budget.held_bytes == 0
