"""The window join and the instant join: what comes out when a window closes."""

import pytest

from dagster_ckpt.errors import CheckpointDeclinedError
from dagster_ckpt.ids import Epoch
from dagster_ckpt.operators import EpochContext
from dagster_ckpt.operators.joins.joined_rows import PAIRS, ROWS_UNMATCHED
from dagster_ckpt.operators.shared.window_kinds import Hopping, Tumbling
from tests.unit.operators.joined_streams import SHARDS, in_dicts, left, right, window_join


def test_rows_of_a_window_come_out_when_the_watermark_reaches_its_end() -> None:
    stream, world = in_dicts(window_join(Tumbling(10)))
    assert stream.epoch(left(1, 9, 10), right(0)) == []
    assert stream.epoch(right(5, 11), watermark_us=5) == []
    assert stream.epoch(watermark_us=9) == []
    assert stream.epoch(watermark_us=10) == [
        ("a", 0, 10, 1, 0, 0, 0),
        ("a", 0, 10, 1, 0, 5, 0),
        ("a", 0, 10, 9, 0, 0, 0),
        ("a", 0, 10, 9, 0, 5, 0),
    ]
    assert stream.counters == {PAIRS: 4, ROWS_UNMATCHED: 0}
    assert world.held() == {"left": 1, "right": 1}
    assert stream.epoch(watermark_us=20) == [("a", 10, 20, 10, 0, 11, 0)]
    assert world.held() == {"left": 0, "right": 0}


def test_rows_of_an_instant_come_out_when_the_watermark_is_beyond_it() -> None:
    operator = window_join(None)
    assert operator.horizon_us == 1
    stream, world = in_dicts(operator)
    stream.epoch(left(5, 6), right(5))
    assert stream.epoch(right(5), watermark_us=5) == [], "more rows of the instant may come"
    assert stream.epoch(watermark_us=6) == [("a", 5, 0, 5, 0)] * 2
    assert world.held() == {"left": 1, "right": 0}


def test_a_row_is_joined_in_each_of_its_hopping_windows() -> None:
    operator = window_join(Hopping(10, 5))
    assert operator.horizon_us == 10
    stream, world = in_dicts(operator)
    stream.epoch(left(6), right(8), right(12))
    assert stream.epoch(watermark_us=10) == [("a", 0, 10, 6, 0, 8, 0)]
    assert stream.epoch(watermark_us=15) == [("a", 5, 15, 6, 0, 12, 0), ("a", 5, 15, 6, 0, 8, 0)]
    assert stream.epoch(watermark_us=99) == []
    assert world.held() == {"left": 0, "right": 0}


@pytest.mark.parametrize(
    ("how", "wanted"),
    [
        ("inner", [("b", 0, 10, 2, 0, 3, 0)]),
        ("left", [("a", 0, 10, 1, 0, None, None), ("b", 0, 10, 2, 0, 3, 0)]),
        ("right", [("b", 0, 10, 2, 0, 3, 0), ("c", 0, 10, None, None, 4, 0)]),
        ("full", [("a", 0, 10, 1, 0, None, None), ("b", 0, 10, 2, 0, 3, 0), ("c", 0, 10, None, None, 4, 0)]),
        ("semi", [("b", 0, 10, 2, 0)]),
        ("anti", [("a", 0, 10, 1, 0)]),
    ],
)
@pytest.mark.parametrize("distinct", [1, 1000])
def test_every_join_type(how: str, wanted: list[object], distinct: int) -> None:
    stream, _ = in_dicts(window_join(Tumbling(10), how), distinct)
    stream.epoch(left(1, k="a"), left(2, k="b"), right(3, k="b"), right(4, k="c"))
    assert stream.epoch(watermark_us=10) == wanted


@pytest.mark.parametrize(
    ("how", "rows"), [("inner", 0), ("left", 2), ("right", 0), ("full", 2), ("semi", 0), ("anti", 2)]
)
def test_a_side_may_be_empty(how: str, rows: int) -> None:
    stream, _ = in_dicts(window_join(Tumbling(10), how))
    stream.epoch(left(1, 2))
    assert len(stream.epoch(watermark_us=10)) == rows


def test_a_row_without_a_key_waits_for_its_window_and_one_without_a_time_for_nothing() -> None:
    stream, world = in_dicts(window_join(Tumbling(10), "full"))
    assert stream.epoch(left(1, k=None), right(1, k=None), left(None), right(None)) == [
        ("a", None, None, None, 0, None, None),
        ("a", None, None, None, None, None, 0),
    ]
    assert world.held() == {"left": 1, "left_timeless": 0, "right": 1, "right_timeless": 0}
    assert stream.epoch(watermark_us=10) == [(None, 0, 10, 1, 0, None, None), (None, 0, 10, None, None, 1, 0)]
    assert stream.counters == {PAIRS: 0, ROWS_UNMATCHED: 2}


def test_an_inner_join_keeps_no_row_that_matches_nothing() -> None:
    stream, world = in_dicts(window_join(Tumbling(10)))
    assert stream.epoch(left(1, k=None), right(None)) == []
    assert world.held() == {"left": 0, "right": 0}


def test_a_row_is_late_where_its_window_is_closed_and_not_before() -> None:
    stream, _ = in_dicts(window_join(Tumbling(10), "full"))
    assert stream.epoch(left(4, 5, None), right(3, k=None), watermark_us=9) == [("a", None, None, None, 0, None, None)]
    assert stream.late == [], "more rows of the window may come until the watermark has reached its end"
    assert stream.epoch(left(9, 10), right(9, k=None), watermark_us=10) == [
        ("a", 0, 10, 4, 0, None, None),
        ("a", 0, 10, 5, 0, None, None),
        (None, 0, 10, None, None, 3, 0),
    ]
    assert stream.late == [(0, ("a", 9, 0)), (1, (None, 9, 0))]
    assert stream.epoch(watermark_us=20) == [("a", 10, 20, 10, 0, None, None)]


def test_a_row_is_joined_in_those_of_its_windows_that_are_still_open() -> None:
    stream, world = in_dicts(window_join(Hopping(10, 5)))
    stream.epoch(left(6))
    assert stream.epoch(right(7), left(4, 3), watermark_us=10) == [], "the window from 0 on is closed without it"
    assert stream.late == [(0, ("a", 4, 0)), (0, ("a", 3, 0))]
    assert world.held() == {"left": 1, "right": 1}, "in the window from 5 on"
    assert stream.epoch(watermark_us=15) == [("a", 5, 15, 6, 0, 7, 0)]


def test_the_windows_of_a_row_may_not_fill_the_gaps_between_them() -> None:
    stream, world = in_dicts(window_join(Hopping(7, 3)))
    stream.epoch(left(7), watermark_us=9)
    assert stream.late == []
    assert world.held()["left"] == 2, "in the windows [3, 10) and [6, 13)"
    stream.epoch(left(8), watermark_us=10)
    assert world.held()["left"] == 2, "both in [6, 13) alone"


def test_a_row_of_an_instant_is_late_below_the_watermark() -> None:
    stream, _ = in_dicts(window_join(None))
    stream.epoch(left(4, 5, None), right(4, 6), watermark_us=5)
    assert stream.late == [(0, ("a", 4, 0)), (1, ("a", 4, 0))]


def test_a_row_has_one_number_in_all_its_windows() -> None:
    stream, world = in_dicts(window_join(Hopping(1000, 1)))
    stream.epoch(left(1, 2), left(2))
    numbers = world.state.tables["left"].live().column("_row").value_counts().to_pylist()
    first = 1 << 32
    assert numbers == [{"values": first + number, "counts": 1000} for number in range(3)]


def test_an_epoch_with_more_rows_than_can_be_numbered_is_declined() -> None:
    context = EpochContext(Epoch(3), SHARDS, len(SHARDS), None, 1 << 20)
    assert context.row_numbers(2).to_pylist() == [3 << 32, (3 << 32) + 1]
    context.counters.update(dict.fromkeys(context.counters, (1 << 32) - 4))
    assert context.row_numbers(2).to_pylist()[-1] == (4 << 32) - 1, "the last there is"
    with pytest.raises(
        CheckpointDeclinedError,
        match=r"limit the rows .*rows=4294967297, .*epoch=3, shards=2$",
    ):
        context.row_numbers(1)


def test_more_rows_than_memory_are_joined_a_stretch_of_time_after_another() -> None:
    stream, _ = in_dicts(window_join(Tumbling(10), "full"), memory_bytes=1 << 10)
    stream.epoch(left(*range(0, 300, 3)), right(*range(0, 300, 7)))
    out = stream.epoch(watermark_us=1000)
    assert stream.pieces > 3
    in_memory, _ = in_dicts(window_join(Tumbling(10), "full"), memory_bytes=1 << 30)
    in_memory.epoch(left(*range(0, 300, 3)), right(*range(0, 300, 7)))
    assert in_memory.epoch(watermark_us=1000) == out
    assert in_memory.pieces == 1
