from datetime import date
from decimal import Decimal
from math import inf, isnan, nan
from typing import Any

import pyarrow as pa
import pytest

from dagster_ckpt.operators import agg
from dagster_ckpt.operators.aggregates.aggregate import RunningAggregate
from dagster_ckpt.operators.aggregates.bags.distinct import DistinctValues
from dagster_ckpt.operators.aggregates.registry import plan
from dagster_ckpt.protocol.manifest.manifest import InputSpec
from tests.unit.operators.keyed_streams import SHARDS, TIME, Stream

VALUES: list[tuple[pa.DataType, list[Any]]] = [
    (pa.int8(), [3, 1, 3, None, 1, 3]),
    (pa.int64(), [2**62, -(2**63), 2**62, None, -(2**63), 2**62]),
    (pa.float64(), [nan, 0.0, -nan, None, -0.0, nan]),
    (pa.float32(), [inf, -1.5, inf, None, -1.5, inf]),
    (pa.string(), ["é", "", "é", None, "", "é"]),
    (pa.large_string(), ["b", "a", "b", None, "a", "b"]),
    (pa.binary(), [b"\xff", b"", b"\xff", None, b"", b"\xff"]),
    (pa.bool_(), [True, False, True, None, False, True]),
    (pa.date32(), [date(2013, 1, 2), date(1, 1, 1), date(2013, 1, 2), None, date(1, 1, 1), date(2013, 1, 2)]),
    (pa.timestamp("us", "UTC"), [5, -5, 5, None, -5, 5]),
    (
        pa.decimal128(30, 2),
        [Decimal("0.01"), Decimal("-0.01"), Decimal("0.01"), None, Decimal("-0.01"), Decimal("0.01")],
    ),
]
"""Of each type two values: that at 0 three times, the lesser one at 1 twice."""
EXPIRING: dict[str, Any] = {"event_time": "at", "expire_after_us": 1000}


def running(schema: pa.Schema, options: dict[str, Any] | None = None, **aggregations: agg.Aggregation) -> Stream:
    return Stream(RunningAggregate.build(("k",), aggregations, InputSpec((), schema), **(options or {})), distinct=1)


def rows(type_: pa.DataType, values: list[Any], key: str = "a") -> pa.Table:
    return pa.table(
        {
            "k": pa.array([key] * len(values), pa.string()),
            "v": pa.array(values, type_),
            "at": pa.array(range(len(values)), TIME),
        }
    )


@pytest.mark.parametrize("options", [{}, EXPIRING], ids=["in a table", "in lists"])
@pytest.mark.parametrize(("type_", "values"), VALUES, ids=str)
def test_different_values_of_every_type_are_counted_however_rows_are_cut(
    type_: pa.DataType, values: list[Any], options: dict[str, Any]
) -> None:
    table = pa.concat_tables([rows(type_, values), rows(type_, [values[0], None], "b"), rows(type_, [None], "c")])
    for size in (1, 4, 9):
        aggregates = {"n": agg.count_distinct("v"), "also": agg.count_distinct("v"), "rows": agg.count()}
        operator = RunningAggregate.build(("k",), aggregates, InputSpec((), table.schema), **options)
        one = Stream.on_engine(operator, 0, 1, [SHARDS], 1 << 28)  # a dict would not find NaN again
        batches = [table.slice(start, size).combine_chunks() for start in range(0, 9, size)]
        if options:  # one epoch, since the watermark would make rows late
            one.epoch(*batches)
        else:
            for batch in batches:
                one.epoch(batch)
        assert {row["k"]: (row["n"], row["also"]) for row in one.table()} == {"a": (2, 2), "b": (1, 1), "c": (0, 0)}


def test_a_value_is_kept_once_for_each_key_of_a_running_aggregate() -> None:
    one = running(rows(pa.string(), []).schema, x=agg.count_distinct("v"), y=agg.count_distinct("k"))
    for _ in range(3):
        one.epoch(rows(pa.string(), ["p", "q", "p"]), rows(pa.string(), ["q", "r"]), rows(pa.string(), ["q"], "b"))
    assert one.held() == {"groups": 2, "distinct_0": 4, "distinct_1": 2}
    assert {row["k"]: (row["x"], row["y"]) for row in one.table()} == {"a": (3, 1), "b": (1, 1)}


def test_a_value_that_is_there_already_is_no_change() -> None:
    one = running(rows(pa.string(), []).schema, x=agg.count_distinct("v"))
    assert len(one.epoch(rows(pa.string(), ["p"]))) == 1
    assert one.epoch(rows(pa.string(), ["p", None])) == []


def test_lists_of_different_values_are_sorted_and_spelled_in_one_way() -> None:
    schema = rows(pa.float64(), []).schema
    one = running(schema, EXPIRING, n=agg.count_distinct("v"))
    one.epoch(rows(pa.float64(), [nan, -0.0, 5.0]), rows(pa.float64(), [-nan, 0.0, -inf]))
    [kept] = one.world.live("groups").column("_distinct(v)").to_pylist()
    assert repr(kept) == repr([-inf, 0.0, 5.0, nan])


def test_the_first_values_are_collected_in_order_and_no_more_than_the_limit() -> None:
    table = pa.table(
        {
            "k": ["a"] * 6 + ["b"],
            "v": ["late", "first", "tie b", None, "tie a", "no time", None],
            "at": pa.array([9, 1, 5, 0, 5, None, 3], TIME),
        }
    )
    for size in (1, 3, 7):
        one = running(table.schema, {"event_time": "at"}, two=agg.collect("v", 2), all=agg.collect("v", 100))
        for start in range(0, 7, size):
            one.epoch(table.slice(start, size).combine_chunks())
        assert {row["k"]: (row["two"], row["all"]) for row in one.table()} == {
            "a": (["first", "tie a"], ["first", "tie a", "tie b", "late"]),
            "b": ([], []),
        }


def test_equal_values_are_collected_as_often_as_they_came() -> None:
    one = running(rows(pa.int64(), []).schema, x=agg.collect("v", 3, by="v"))
    one.epoch(rows(pa.int64(), [7, 7]))
    one.epoch(rows(pa.int64(), [7, 9, 1, 7]))
    assert [row["x"] for row in one.table()] == [[1, 7, 7]]


@pytest.mark.parametrize(("type_", "values"), VALUES, ids=str)
def test_values_of_every_type_are_collected_and_order_others(type_: pa.DataType, values: list[Any]) -> None:
    table = rows(type_, values)
    one = running(
        table.schema, x=agg.collect("v", 9, by="at"), y=agg.collect("at", 2, by="v"), z=agg.collect("v", 9, by="v")
    )
    one.epoch(table.slice(3), table.slice(0, 3))
    assert one.operator.table is not None
    [found] = one.operator.table.rows(one.world.live("groups")).to_pylist()
    assert one.operator.pipeline.output.field("x").type == pa.list_(type_)
    wanted = table.column("v").to_pylist()
    for name, order in (("x", [0, 1, 2, 4, 5]), ("z", [1, 4, 0, 2, 5])):
        for value, at in zip(found[name], order, strict=True):
            assert value == wanted[at] or (isnan(value) and isnan(wanted[at]))
    assert [at.microsecond for at in found["y"]] == [1, 4]


def test_a_list_of_distinct_values_merges_with_a_group_that_is_new() -> None:
    accumulator = DistinctValues("v", pa.string())
    old = {accumulator.name: pa.array([None, ["a", "c"], []], pa.list_(pa.string()))}
    new = {accumulator.name: pa.array([["b"], ["b", "c"], []], pa.list_(pa.string()))}
    [merged] = accumulator.merge(old, new)
    assert merged.to_pylist() == [["b"], ["a", "b", "c"], []]


def test_windows_and_sessions_keep_the_different_values_with_the_group() -> None:
    planned = plan("n", agg.count_distinct("v"), {"v": pa.string()}, None)
    assert planned.accumulators == (DistinctValues("v", pa.string()),)
    assert planned.result({"_distinct(v)": pa.array([["a", "b"], []])}).to_pylist() == [2, 0]


@pytest.mark.parametrize("type_", [pa.string(), pa.large_binary()])
def test_an_empty_value_is_one_value_whatever_comes_beside_it(type_: pa.DataType) -> None:
    one = running(rows(type_, []).schema, n=agg.count_distinct("v"))
    one.epoch(rows(type_, [b"", None]))
    one.epoch(rows(type_, [b"", b"x"]))
    assert [row["n"] for row in one.table()] == [2]
