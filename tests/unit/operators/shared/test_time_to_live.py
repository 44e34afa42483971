import re
from typing import Any

import pyarrow as pa
import pytest

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.operators import agg
from dagster_ckpt.operators.aggregates.aggregate import KEYS_TOUCHED, RunningAggregate
from dagster_ckpt.protocol.manifest.manifest import InputSpec
from tests.unit.operators.keyed_streams import TIME, Row, Stream, in_any_order, replayed

SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64()), ("at", TIME)])
AGGREGATES = {"rows": agg.count(), "total": agg.sum("v"), "kinds": agg.count_distinct("v")}


def stream(delay_us: int = 0, expire_after_us: int | None = 10, late: str = "drop") -> Stream:
    operator = RunningAggregate.build(("k",), AGGREGATES, InputSpec((), SCHEMA), "at", expire_after_us, late)
    return Stream(operator, delay_us, distinct=1)


def batch(*rows: tuple[str | None, int | None, int | None]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], schema=SCHEMA)


def row(k: str | None, rows: int, total: int | None, kinds: int) -> Row:
    return {"k": k, "rows": rows, "total": total, "kinds": kinds}


def test_a_key_without_rows_leaves_the_table_after_its_time_to_live() -> None:
    one = stream()
    table = replayed([], one.epoch(batch(("a", 1, 0), ("b", 1, 3))))
    table = replayed(table, one.epoch(batch(("a", 2, 8))))
    table = replayed(table, one.epoch(batch(("c", 5, 13))))
    assert in_any_order(table) == in_any_order([row("a", 2, 3, 2), row("b", 1, 1, 1), row("c", 1, 5, 1)])
    assert one.epoch() == [{**row("b", 1, 1, 1), "_change_type": "delete"}]
    assert one.epoch() == []
    assert one.held() == {"groups": 2, "expiries": 2}


def test_a_later_row_starts_the_key_again() -> None:
    one = stream()
    one.epoch(batch(("a", 1, 0), ("b", 1, 30)))
    one.epoch()
    assert one.epoch(batch(("a", 7, 30))) == [{**row("a", 1, 7, 1), "_change_type": "insert"}]


def test_also_in_the_epoch_in_which_its_time_has_come() -> None:
    one = stream()
    one.epoch(batch(("a", 1, 0), ("b", 1, 30)))
    table = [row("a", 1, 1, 1), row("b", 1, 1, 1)]
    table = replayed(table, one.epoch(batch(("a", 7, 30)), batch(("a", 8, 35), ("a", 9, None))))
    assert in_any_order(table) == in_any_order([row("a", 3, 24, 3), row("b", 1, 1, 1)])
    assert one.held() == {"groups": 2, "expiries": 2}


def test_a_key_lives_exactly_as_long_as_configured() -> None:
    one = stream(expire_after_us=10)
    one.epoch(batch(("a", 1, 0), ("b", 1, 9)))
    assert one.epoch(batch(("b", 1, 10))) != []
    assert len(one.table()) == 2
    assert [change["k"] for change in one.epoch() if change["_change_type"] == "delete"] == ["a"]


def test_a_row_below_the_watermark_is_late_and_one_without_time_is_not() -> None:
    one = stream(delay_us=5)
    one.epoch(batch(("a", 1, 20)))
    one.epoch(batch(("a", 2, 14), ("a", 3, 15), ("a", 4, None)))
    assert one.late == [{"k": "a", "v": 2, "at": 14}]
    assert one.table() == [row("a", 3, 8, 3)]


def test_a_key_without_any_time_stays_until_it_has_one() -> None:
    one = stream()
    one.epoch(batch(("a", 1, None), ("b", 1, 100)))
    one.epoch()
    assert one.held() == {"groups": 2, "expiries": 1}
    one.epoch(batch(("a", 1, 100)))
    assert one.held() == {"groups": 2, "expiries": 2}
    one.epoch(batch(("c", 1, 111)))
    assert [change["_change_type"] for change in one.epoch()] == ["delete", "delete"]
    assert one.held() == {"groups": 1, "expiries": 1}


def test_a_key_that_starts_again_without_a_time_stays_too() -> None:
    one = stream()
    one.epoch(batch(("a", 1, 0), ("b", 1, 100)))
    one.epoch(batch(("a", 5, None)))
    assert row("a", 1, 5, 1) in one.table()
    assert one.held() == {"groups": 2, "expiries": 1}


def test_a_busy_key_has_one_entry_however_often_it_comes() -> None:
    one = stream()
    for time in range(0, 200, 4):
        one.epoch(batch(("a", 1, time)), batch(("a", 1, time + 1)))
        assert one.held() == {"groups": 1, "expiries": 1}
    assert one.table() == [row("a", 100, 100, 1)]


def test_touched_keys_are_counted_and_so_are_those_that_leave() -> None:
    one = stream()
    one.epoch(batch(("a", 1, 0), ("a", 2, 0), ("b", 1, 30)))
    assert one.counters == {KEYS_TOUCHED: 2}
    one.epoch(batch(("c", 1, 30)))
    assert one.counters == {KEYS_TOUCHED: 2}


def test_without_a_time_to_live_the_pipeline_is_unchanged() -> None:
    operator = stream(expire_after_us=None).operator
    assert operator.pipeline.parameters.keys() == {"aggregates", "event_time"}
    assert [table.name for table in operator.pipeline.tables] == ["groups", "distinct_0"]
    assert operator.horizon_us is None
    one = stream(expire_after_us=None)
    one.epoch(batch(("a", 1, 1000)))
    one.epoch(batch(("a", 2, 0)))
    assert one.late == []
    assert one.table() == [row("a", 2, 3, 2)]


def test_late_rows_have_a_table_with_all_columns_where_they_are_kept() -> None:
    schema = SCHEMA.append(pa.field("other", pa.string()))
    operator = RunningAggregate.build(("k",), AGGREGATES, InputSpec((), schema), "at", 10, "keep")
    assert [table.name for table in operator.pipeline.tables] == ["groups", "expiries", "_late_0"]
    assert operator.pipeline.inputs[0].schema == schema


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"expire_after_us": 10}, "aggregate with expire_after needs event time: call with_watermark(column, delay)"),
        ({"expire_after_us": -1, "event_time": "at"}, "expire_after must be a length of time above zero"),
        ({"late": "keep", "event_time": "at"}, "without expire_after no row is ever too late: leave late= out"),
        ({"late": "no", "expire_after_us": 1, "event_time": "at"}, "late='no'"),
    ],
)
def test_what_cannot_work_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidPipelineError, match=re.escape(message)):
        RunningAggregate.build(("k",), AGGREGATES, InputSpec((), SCHEMA), **options)


@pytest.mark.parametrize("key", ["_hash", "_expiry_of", "_last_time"])
def test_a_key_with_a_name_that_the_state_needs_is_refused(key: str) -> None:
    schema = pa.schema([(key, pa.string()), ("at", TIME)])
    with pytest.raises(InvalidPipelineError, match=f"rename the key before key_by. key={key}"):
        RunningAggregate.build((key,), {"n": agg.count()}, InputSpec((), schema), "at", 10)
