"""When rows come out that nothing matches, and rows that come out for themselves."""

import pytest

from dagster_ckpt.operators.joins.joined_rows import PAIRS, ROWS_UNMATCHED
from tests.unit.operators.joined_streams import in_dicts, interval_join, left, right

LEFT_ALONE = ("a", 10, 0, None, None)
RIGHT_ALONE = ("a", None, None, 10, 0)


@pytest.mark.parametrize("how", ["left", "full"])
def test_an_unmatched_left_row_comes_out_when_all_that_matches_it_would_be_late(how: str) -> None:
    stream, _ = in_dicts(interval_join(-2, 3, how))
    assert stream.epoch(left(10)) == []
    assert stream.epoch(watermark_us=13) == [], "a right row at 13 is not late yet"
    assert stream.epoch(watermark_us=14) == [LEFT_ALONE]
    assert stream.counters[ROWS_UNMATCHED] == 1
    assert stream.epoch(watermark_us=99) == []


@pytest.mark.parametrize("how", ["right", "full"])
def test_so_does_an_unmatched_right_row(how: str) -> None:
    stream, _ = in_dicts(interval_join(-2, 3, how))
    assert stream.epoch(right(10)) == []
    assert stream.epoch(watermark_us=12) == [], "a left row at 12 is not late yet"
    assert stream.epoch(watermark_us=13) == [RIGHT_ALONE]
    assert stream.epoch(watermark_us=99) == []


def test_the_last_row_that_may_match_still_does() -> None:
    stream, _ = in_dicts(interval_join(-2, 3, "full"))
    stream.epoch(left(10))
    assert stream.epoch(right(13), watermark_us=13) == [("a", 10, 0, 13, 0)]
    assert stream.epoch(watermark_us=99) == []


def test_a_row_whose_time_has_passed_already_comes_out_in_its_own_epoch() -> None:
    stream, world = in_dicts(interval_join(-9, -5, "left"))
    assert stream.epoch(left(10, 15), watermark_us=10) == [LEFT_ALONE]
    assert stream.epoch(left(12), right(10), watermark_us=10) == [("a", 12, 0, None, None), ("a", 15, 0, 10, 0)]
    assert world.held()["left_unmatched"] == 0


def test_a_row_that_matched_before_its_time_passed_does_not_come_out_alone() -> None:
    stream, world = in_dicts(interval_join(-5, 5, "full"))
    stream.epoch(left(10))
    assert stream.epoch(right(11), watermark_us=9) == [("a", 10, 0, 11, 0)]
    assert stream.epoch(left(12), watermark_us=9) == [("a", 12, 0, 11, 0)]
    assert stream.counters == {PAIRS: 1, ROWS_UNMATCHED: 0}
    assert stream.epoch(watermark_us=99) == []
    assert set(world.held().values()) == {0}


def test_a_left_row_comes_out_of_a_semi_join_once_at_its_first_match() -> None:
    stream, world = in_dicts(interval_join(-5, 5, "semi"))
    assert stream.epoch(left(10, v=1), left(12, k="b")) == []
    assert stream.epoch(right(11, 11, 12)) == [("a", 10, 1)]
    assert stream.epoch(right(13)) == []
    assert stream.epoch(left(11, v=2)) == [("a", 11, 2)], "the right rows are there already"
    assert world.held()["left"] == 1, "what has come out is done with"
    assert stream.epoch(watermark_us=99) == []
    assert set(world.held().values()) == {0}


def test_a_left_row_comes_out_of_an_anti_join_when_nothing_can_match_it_any_more() -> None:
    stream, world = in_dicts(interval_join(-5, 5, "anti"))
    assert stream.epoch(left(10, v=1), left(12, k="b")) == []
    assert stream.epoch(right(11), left(11, v=2)) == []
    assert world.held() == {"left_arrivals": 0, "left": 1, "left_unmatched": 1, "right_arrivals": 0, "right": 1}
    assert stream.epoch(watermark_us=17) == []
    assert stream.epoch(watermark_us=18) == [("b", 12, 0)]
    assert stream.epoch(watermark_us=99) == []


@pytest.mark.parametrize(
    ("how", "wanted"),
    [
        ("inner", []),
        ("semi", []),
        ("left", [("a", None, 0, None, None), (None, 5, 0, None, None)]),
        ("right", [("a", None, None, None, 0), (None, None, None, 6, 0)]),
        ("anti", [("a", None, 0), (None, 5, 0)]),
    ],
)
def test_a_row_without_key_or_time_comes_out_at_once_or_never(how: str, wanted: list[object]) -> None:
    stream, world = in_dicts(interval_join(-5, 5, how))
    assert stream.epoch(left(5, k=None), left(None), right(6, k=None), right(None), watermark_us=5) == wanted
    assert stream.late == []
    assert set(world.held().values()) == {0}
    assert stream.epoch(watermark_us=99) == []


def test_rows_of_a_semi_and_an_anti_join_are_kept_no_wider_than_needed() -> None:
    semi, anti = (
        {table.name: table.schema.names for table in interval_join(0, 1, how).pipeline.tables}
        for how in ("semi", "anti")
    )
    assert semi["right"] == anti["right"] == ["k", "bt", "_bucket", "_row"]
    assert semi["left"] == ["k", "at", "v", "_bucket", "_row"]
    assert anti["left"] == ["k", "at", "_bucket", "_row"]
    assert anti["left_unmatched"] == ["k", "at", "v", "_hash", "_row"]
    assert interval_join(0, 1, "semi").pipeline.inputs[1].schema.names == ["k", "bt"]
