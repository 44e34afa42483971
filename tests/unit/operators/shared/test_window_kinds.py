import json
from collections.abc import Callable
from datetime import timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.operators.shared.window_kinds import (
    FixedWindow,
    Hopping,
    Session,
    Tumbling,
    Window,
    hopping,
    session,
    tumbling,
    window_as_json,
    window_from_json,
)

SECOND = 1_000_000


def windows_of(window: FixedWindow, *times: int) -> list[list[int]]:
    """Where the windows of each moment begin."""
    assigned = window.assign(np.array(times, dtype=np.int64))
    starts: list[list[int]] = [[] for _ in times]
    for row, start in zip(assigned.rows.tolist(), assigned.starts.tolist(), strict=True):
        starts[row].append(start)
    assert (np.diff(assigned.rows) >= 0).all()
    return starts


def test_a_tumbling_window_holds_its_start_and_not_its_end() -> None:
    assert windows_of(Tumbling(10), 0, 9, 10, 19, 20) == [[0], [0], [10], [10], [20]]


def test_windows_before_1970_begin_before_their_rows_too() -> None:
    assert windows_of(Tumbling(10), -1, -10, -11) == [[-10], [-10], [-20]]
    assert windows_of(Hopping(10, 5), -1, -5, -6) == [[-10, -5], [-10, -5], [-15, -10]]


def test_an_offset_moves_all_windows() -> None:
    assert windows_of(Tumbling(10, 3), 2, 3, 12, 13) == [[-7], [3], [3], [13]]
    assert windows_of(Tumbling(10, -7), 2, 3) == windows_of(Tumbling(10, 13), 2, 3) == [[-7], [3]]


def test_a_row_is_in_all_hopping_windows_that_hold_its_time() -> None:
    assert windows_of(Hopping(10, 5), 0, 4, 5, 9) == [[-5, 0], [-5, 0], [0, 5], [0, 5]]
    assert windows_of(Hopping(10, 10), 12) == windows_of(Tumbling(10), 12)


def test_a_slide_that_does_not_divide_the_size_gives_one_window_more_or_less() -> None:
    assert windows_of(Hopping(10, 4), 0, 1, 2, 3, 4) == [[-8, -4, 0], [-8, -4, 0], [-4, 0], [-4, 0], [-4, 0, 4]]


@given(
    st.integers(1, 40),
    st.integers(1, 40),
    st.integers(-50, 50),
    st.lists(st.integers(-100, 100), max_size=10),
)
def test_windows_are_those_whose_bounds_hold_the_time(one: int, other: int, offset: int, times: list[int]) -> None:
    slide, size = sorted([one, other])
    window = Hopping(size, slide, offset)
    candidates = range(offset - 200 * slide, offset + 200 * slide, slide)
    assert windows_of(window, *times) == [[s for s in candidates if s <= time < s + size] for time in times]
    assert all(len(starts) <= window.windows_of_a_row for starts in windows_of(window, *times))
    assert [starts[-1:] for starts in windows_of(window, *times)] == [
        [start] for start in window.last_starts(np.array(times, dtype=np.int64)).tolist()
    ]
    tumbled = windows_of(Tumbling(size, offset), *times)
    assert tumbled == [[offset + (time - offset) // size * size] for time in times]


def test_windows_are_made_from_durations() -> None:
    assert tumbling("5 minutes") == Tumbling(300 * SECOND)
    assert tumbling(timedelta(days=1), offset="-2 hours") == Tumbling(86_400 * SECOND, -7_200 * SECOND)
    assert hopping("1h", "15min", offset="1s") == Hopping(3_600 * SECOND, 900 * SECOND, SECOND)
    assert session("30s") == Session(30 * SECOND)


@pytest.mark.parametrize("window", [Tumbling(10), Tumbling(10, -3), Hopping(10, 5, 1), Session(7)])
def test_a_window_is_the_same_after_json(window: Window) -> None:
    assert window_from_json(json.loads(json.dumps(window_as_json(window)))) == window


@pytest.mark.parametrize("values", [{"kind": "cumulative"}, {"size_us": 1}, {"kind": "tumbling", "gap_us": 1}])
def test_json_that_is_no_window_is_refused(values: dict[str, object]) -> None:
    with pytest.raises((LookupError, TypeError)):
        window_from_json(values)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: tumbling("0s"), "the size of a window must be a length of time above zero"),
        (lambda: tumbling("-5 minutes"), "size=-300000000 us"),
        (lambda: tumbling("soon"), "size must be a distance in time"),
        (lambda: tumbling("5s", offset="soon"), "offset must be a distance in time"),
        (lambda: tumbling("20000000 days"), "at most 36,000 years"),
        (lambda: hopping("10s", "0s"), "the slide of a window must be a length of time above zero"),
        (lambda: hopping("10s", "11s"), "choose a slide no longer than the size. size=10000000 us, slide=11000000"),
        (lambda: hopping("1 day", "1ms"), "each row would be in 86400000 windows, at most 10000 are allowed"),
        (lambda: session(timedelta(0)), "the gap of a window must be a length of time above zero"),
    ],
)
def test_a_window_that_makes_no_sense(make: Callable[[], Window], message: str) -> None:
    with pytest.raises(InvalidPipelineError, match=message):
        make()
