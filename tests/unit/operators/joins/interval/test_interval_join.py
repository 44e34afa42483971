"""Which rows an interval join brings together, and when."""

import numpy as np
import pyarrow as pa
import pytest

from dagster_ckpt.lsm.table import FoundAll, Hashes
from dagster_ckpt.operators.joins import IntervalJoin, JoinType, WindowedJoin
from dagster_ckpt.operators.joins.joined_rows import PAIRS
from dagster_ckpt.operators.shared.window_kinds import Tumbling
from tests.unit.operators.dict_state import DictTable
from tests.unit.operators.joined_streams import (
    KEYS,
    SCHEMAS,
    TIMES,
    Row,
    in_dicts,
    inputs,
    interval_join,
    left,
    right,
    window_join,
)

TYPES = list(JoinType)


def times(rows: list[Row]) -> list[tuple[int, int]]:
    """The event times of pairs."""
    return sorted((at, bt) for _, at, _, bt, _ in rows)


def test_both_bounds_are_inclusive() -> None:
    stream, _ = in_dicts(interval_join(-2, 3))
    assert times(stream.epoch(left(10), right(7, 8, 10, 13, 14))) == [(10, 8), (10, 10), (10, 13)]
    assert stream.counters[PAIRS] == 3


@pytest.mark.parametrize(
    ("lower", "upper", "first", "last"),
    [(2, 5, 12, 15), (-5, -2, 5, 8), (0, 0, 10, 10), (4, 4, 14, 14), (-9, 9, 1, 19)],
)
def test_bounds_may_be_on_one_side_or_equal(lower: int, upper: int, first: int, last: int) -> None:
    stream, _ = in_dicts(interval_join(lower, upper))
    stream.epoch(right(*range(30)))
    assert times(stream.epoch(left(10))) == [(10, time) for time in range(first, last + 1)]


@pytest.mark.parametrize("turned", [False, True])
def test_a_pair_comes_out_once_wherever_its_rows_are(*, turned: bool) -> None:
    first, second = (right(6), left(5)) if turned else (left(5), right(6))
    for epochs in ([[first, second]], [[second, first]], [[first], [second]], [[second], [], [first]]):
        stream, _ = in_dicts(interval_join(-1, 1))
        out = [row for batches in epochs for row in stream.epoch(*batches)]
        assert out == [("a", 5, 0, 6, 0)]


def test_equal_rows_are_rows_of_their_own() -> None:
    stream, _ = in_dicts(interval_join(0, 0))
    assert stream.epoch(left(5, 5), right(5)) == [("a", 5, 0, 5, 0)] * 2
    assert stream.epoch(right(5)) == [("a", 5, 0, 5, 0)] * 2


@pytest.mark.parametrize("distinct", [1, 1000])
def test_only_equal_keys_match_whatever_their_hashes(distinct: int) -> None:
    stream, _ = in_dicts(interval_join(-5, 5), distinct)
    stream.epoch(left(5, k="a"), left(5, k="b"), right(5, k="c"))
    assert stream.epoch(right(6, k="b"), left(7, k="c")) == [("b", 5, 0, 6, 0), ("c", 7, 0, 5, 0)]


def test_null_equals_nothing() -> None:
    stream, world = in_dicts(interval_join(-5, 5))
    assert stream.epoch(left(5, k=None), right(5, k=None), left(None), right(None)) == []
    assert set(world.held().values()) == {0}


def test_a_row_below_the_watermark_is_late_and_matches_nothing() -> None:
    stream, _ = in_dicts(interval_join(-5, 5, "full"))
    assert stream.epoch(left(9, 10, k=None), left(9, None), right(8), watermark_us=10) == [
        ("a", None, 0, None, None),
        (None, 10, 0, None, None),
    ]
    assert stream.late == [(0, (None, 9, 0)), (0, ("a", 9, 0)), (1, ("a", 8, 0))]


def test_a_row_is_kept_for_as_long_as_a_match_may_come() -> None:
    stream, world = in_dicts(interval_join(-2, 3))
    stream.epoch(left(10), right(10))
    assert times(stream.epoch(right(13), left(12), watermark_us=12)) == [(10, 13), (12, 10), (12, 13)]
    stream.epoch(watermark_us=13)
    assert world.held() == {"left_arrivals": 0, "left": 2, "right_arrivals": 0, "right": 1}
    stream.epoch(watermark_us=14)
    assert world.held()["left"] == 1
    stream.epoch(watermark_us=16)
    assert set(world.held().values()) == {0}


@pytest.mark.parametrize("how", ["inner", "semi"])
def test_what_gives_no_unmatched_rows_keeps_no_timeline_and_waits_for_nothing(how: str) -> None:
    operator = interval_join(-2, 3, how)
    assert [table.name for table in operator.pipeline.tables] == ["left_arrivals", "left", "right_arrivals", "right"]
    assert operator.horizon_us is None


@pytest.mark.parametrize(("lower", "upper", "horizon"), [(-2, 3, 4), (-5, 3, 6), (1, 4, 5), (-4, -1, 5), (0, 0, 1)])
def test_beyond_the_horizon_nothing_waits(lower: int, upper: int, horizon: int) -> None:
    operator = interval_join(lower, upper, "full")
    assert operator.horizon_us == horizon
    stream, world = in_dicts(operator)
    stream.epoch(left(10), right(10, k="b"))
    out = stream.epoch(watermark_us=10 + horizon)
    assert len(out) == 2
    assert set(world.held().values()) == {0}


def test_a_join_with_expiration_matches_rows_that_are_near_enough() -> None:
    operator = IntervalJoin.expiring(inputs(), KEYS, TIMES, 3)
    assert operator.pipeline == interval_join(-3, 3).pipeline
    stream, _ = in_dicts(operator)
    stream.epoch(left(10))
    assert times(stream.epoch(right(6, 7, 13, 14))) == [(10, 7), (10, 13)]


def test_bounds_may_be_as_wide_as_time() -> None:
    far = 1 << 60
    stream, _ = in_dicts(interval_join(-far, far))
    stream.epoch(*(left(5, 6, k=key) for key in "abcdefgh"))
    assert len(stream.epoch(*(right(7, k=key) for key in "abcdefgh"))) == 16


def test_a_hot_key_is_looked_at_only_near_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    stream, _ = in_dicts(interval_join(-2, 2))
    stream.epoch(right(*range(1000)))
    looked_at = []
    get_all = DictTable.get_all

    def counted(self: DictTable, hashes: Hashes, keys: pa.Table) -> FoundAll:
        found = get_all(self, hashes, keys)
        looked_at.append(found.rows.num_rows)
        return found

    monkeypatch.setattr(DictTable, "get_all", counted)
    assert len(stream.epoch(left(500))) == 5
    assert sum(looked_at) <= 16, "two buckets, each twice as wide as what the row reaches"


def test_much_output_comes_in_pieces() -> None:
    stream, _ = in_dicts(interval_join(0, 0), memory_bytes=1 << 16)
    assert len(stream.epoch(left(*[5] * 100), right(*[5] * 100))) == 10_000
    assert stream.pieces > 5
    stream.memory_bytes = 1 << 30
    assert len(stream.epoch(left(6), right(6), right(7))) == 1
    assert stream.pieces == 1


@pytest.mark.parametrize("operator", [interval_join(-9, 9, "semi", "keep"), window_join(Tumbling(10), "semi", "keep")])
def test_inputs_whose_late_rows_are_kept_have_all_their_columns(operator: IntervalJoin | WindowedJoin) -> None:
    assert [source.schema for source in operator.pipeline.inputs] == list(SCHEMAS)
    stream, _ = in_dicts(operator)
    out = stream.epoch(left(5, v=1), right(3, 6), watermark_us=5) + stream.epoch(watermark_us=10)
    assert [row[-1] for row in out] == [1]
    assert stream.operator.event_times == TIMES


def test_on_rows_with_nothing_in_it_is_nothing() -> None:
    stream, _ = in_dicts(interval_join(0, 0, "full"))
    assert stream.epoch(left(), right()) == []
    assert stream.pieces == 0


@pytest.mark.parametrize("how", TYPES)
def test_the_order_of_on_rows_does_not_matter(how: JoinType) -> None:
    batches = [left(5, 9, None), right(6), left(6, k=None), right(8, 30), left(20), right(21, k="b")]
    outcomes = []
    for order in np.array([[0, 1, 2, 3, 4, 5], [5, 4, 3, 2, 1, 0], [2, 0, 4, 5, 1, 3]]).tolist():
        stream, world = in_dicts(interval_join(-1, 2, how))
        outcomes.append((stream.epoch(*(batches[at] for at in order)), world.held()))
    assert outcomes[0] == outcomes[1] == outcomes[2]
