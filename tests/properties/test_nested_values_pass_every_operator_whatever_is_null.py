"""Columns of any nested type, with nulls at any depth, through every operator: what goes in comes out.

Spark declares which parts of a nested value are never null, and within a null value they are null all the same.
"""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    DataType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from dagster_ckpt import agg, over, session, tumbling
from dagster_ckpt.operators.aggregates.aggregate import RunningAggregate
from dagster_ckpt.operators.joins import IntervalJoin, WindowedJoin
from dagster_ckpt.operators.process import KeyedState, ListState, ProcessContext, ProcessFunction, ValueState
from dagster_ckpt.operators.process.process_operator import ProcessOperator
from dagster_ckpt.operators.rows.append import AppendOnly
from dagster_ckpt.operators.rows.deduplicate import Deduplicate
from dagster_ckpt.operators.rows.materializer import Materializer
from dagster_ckpt.operators.rows.over.over import OverPartition
from dagster_ckpt.operators.rows.top import Best, Top
from dagster_ckpt.operators.step import OperatorStep
from dagster_ckpt.operators.windows.session_aggregate import SessionAggregate
from dagster_ckpt.operators.windows.window_aggregate import WindowAggregate
from dagster_ckpt.protocol.manifest.manifest import InputSpec
from dagster_ckpt.runtime.spark.arrow_schemas import to_arrow_schema
from tests.worlds.examples import examples
from tests.worlds.task_stream import Row, TaskStream, input_of

Typed = tuple[DataType, st.SearchStrategy[Any]]

FEW = examples(6, 2)
PLAIN: list[Typed] = [(LongType(), st.integers(-9, 9)), (StringType(), st.text("ab", max_size=2))]


def perhaps(draw: st.DrawFn, values: st.SearchStrategy[Any]) -> tuple[bool, st.SearchStrategy[Any]]:
    """Whether Spark says that the values may be null, and the values: never null where it does not."""
    nullable = draw(st.booleans())
    return nullable, values | st.none() if nullable else values


@st.composite
def nested(draw: st.DrawFn, depth: int = 3) -> Typed:
    """A nested type of Spark's, and its values."""
    kind = draw(st.sampled_from(["struct", "array", "map"]))
    inner = [draw(nested(depth - 1) if depth > 1 and draw(st.booleans()) else st.sampled_from(PLAIN)) for _ in range(2)]
    (first, first_values), (second, second_values) = inner
    nullable, values = perhaps(draw, first_values)
    if kind == "array":
        return ArrayType(first, nullable), st.lists(values, max_size=2)
    if kind == "map":
        return MapType(StringType(), first, nullable), st.lists(
            st.tuples(st.sampled_from("xyz"), values), max_size=2, unique_by=lambda pair: pair[0]
        )
    also_nullable, also = perhaps(draw, second_values)
    fields = [StructField("a", first, nullable), StructField("b", second, also_nullable)]
    return StructType(fields), st.fixed_dictionaries({"a": values, "b": also})


@st.composite
def columns_and_values(draw: st.DrawFn) -> tuple[DataType, list[Any]]:
    """A nested column that may be null, and its values in some rows, one at least."""
    type_, values = draw(nested())
    return type_, draw(st.lists(values | st.none(), min_size=1, max_size=5))


COLUMN = columns_and_values()


def columns_of(type_: DataType, time: str = "at", value: str = "v") -> StructType:
    """The columns of an input: a key, an event time and the nested column."""
    fields = [StructField("k", LongType()), StructField(time, TimestampType()), StructField(value, type_)]
    return StructType(fields)


def rows_of(values: list[Any], time: str = "at", value: str = "v", first: int = 0) -> list[Row]:
    """A row for each value, with a key of its own."""
    return [{"k": first + number, time: 1_000 + number, value: each} for number, each in enumerate(values)]


def spelled(rows: list[Row]) -> list[str]:
    """Rows in an order of their own, without their times."""
    return sorted(repr(_ordered({name: row[name] for name in row if name not in ("at", "bt")})) for row in rows)


def _ordered(value: Any) -> Any:
    """The value with the fields of its structs by name."""
    match value:
        case dict():
            return {name: _ordered(value[name]) for name in sorted(value)}
        case list() | tuple():
            return type(value)(map(_ordered, value))
        case _:
            return value


@contextmanager
def a_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


@given(COLUMN)
@FEW
def test_an_append_only_stream_keeps_nested_values(column: tuple[DataType, list[Any]]) -> None:
    type_, values = column
    columns, rows = columns_of(type_), rows_of(values)
    with a_folder() as folder:
        stream = TaskStream(folder, AppendOnly.build(input_of(columns)), [columns], (None,))
        stream.epoch((0, rows))
        stream.epoch((0, rows))
        assert spelled(stream.rows()) == spelled(rows * 2)


@pytest.mark.parametrize(
    "build",
    [
        lambda source: Deduplicate.build(("k",), source, "first", "at"),
        lambda source: Deduplicate.build(("k",), source, "last", "at"),
        lambda source: Deduplicate.build(("k",), source, "first", "at", 60_000_000, "keep"),
        lambda source: Deduplicate.build(("k",), source, "last", "at", 60_000_000, "keep"),
    ],
)
@given(COLUMN)
@FEW
def test_deduplicate_keeps_nested_values(
    build: Callable[[InputSpec], Deduplicate], column: tuple[DataType, list[Any]]
) -> None:
    type_, values = column
    columns, rows = columns_of(type_), rows_of(values)
    with a_folder() as folder:
        stream = TaskStream(folder, build(input_of(columns)), [columns], ("at",), delay_us=10_000_000)
        stream.epoch((0, rows))
        stream.epoch((0, rows))
        assert spelled(stream.rows()) == spelled(rows)
        if stream.operator.pipeline.appends:
            return
        changes = stream.history.changes(0).to_pylist()
        assert spelled([{name: row[name] for name in ("k", "v")} for row in changes]) == spelled(rows)


@pytest.mark.parametrize("how", ["inner", "left", "right", "full", "semi", "anti"])
@pytest.mark.parametrize("windowed", [False, True])
@given(COLUMN, COLUMN)
@examples(3, 2)
def test_joins_keep_nested_values(
    how: str, windowed: bool, lefts: tuple[DataType, list[Any]], rights: tuple[DataType, list[Any]]
) -> None:
    columns = [columns_of(lefts[0]), columns_of(rights[0], "bt", "w")]
    left, right = rows_of(lefts[1]), rows_of(rights[1], "bt", "w")
    # An end of the input that moves the watermark past all of them, under a key that neither has.
    ends: list[Row] = [{"k": -1, "at": 10_000, "v": None}, {"k": -2, "bt": 10_000, "w": None}]
    inputs = [input_of(each) for each in columns]
    keys, times = (("k",), ("k",)), ("at", "bt")
    operator = (
        WindowedJoin.build(inputs, keys, times, None, how)
        if windowed
        else IntervalJoin.build(inputs, keys, times, 0, 0, how)
    )
    with a_folder() as folder:
        stream = TaskStream(folder, operator, columns, times)
        stream.epoch((0, left), (1, right[:2]))
        stream.epoch((1, right[2:]))
        stream.epoch((0, ends[:1]), (1, ends[1:]))
        stream.epoch()
        assert spelled([row for row in stream.rows() if row["k"] is None or row["k"] >= 0]) == spelled(
            joined(left, right, how)
        )


def joined(left: list[Row], right: list[Row], how: str) -> list[Row]:
    """The rows of a join whose sides have each key once, with times that tell the same."""
    of_right = {row["k"]: row for row in right}
    of_left = {row["k"]: row for row in left}
    if how in ("semi", "anti"):
        return [{"k": row["k"], "v": row["v"]} for row in left if (row["k"] in of_right) == (how == "semi")]
    keys = set(of_left) & set(of_right)
    if how in ("left", "full"):
        keys |= set(of_left)
    if how in ("right", "full"):
        keys |= set(of_right)
    return [{"k": key, "v": of_left.get(key, {}).get("v"), "w": of_right.get(key, {}).get("w")} for key in keys]


@pytest.mark.parametrize("window", [tumbling("1s"), session("1s")])
@pytest.mark.parametrize("early", [False, True])
@given(COLUMN)
@FEW
def test_windows_count_nested_values_and_keep_late_rows(
    window: Any, early: bool, column: tuple[DataType, list[Any]]
) -> None:
    type_, values = column
    columns, rows = columns_of(type_), rows_of(values)
    build: Any = SessionAggregate.build if window == session("1s") else WindowAggregate.build
    counts = {"n": agg.count(), "there": agg.count("v")}
    operator = build(("k",), counts, input_of(columns), "at", window, early, "keep")
    end: list[Row] = [{"k": -1, "at": 90_000_000, "v": None}]
    with a_folder() as folder:
        stream = TaskStream(folder, operator, [columns], ("at",))
        stream.epoch((0, rows))
        stream.epoch((0, end))
        stream.epoch((0, rows))
        found = {row["k"]: (row["n"], row["there"]) for row in stream.rows() if row["k"] >= 0}
        assert found == {row["k"]: (1, int(row["v"] is not None)) for row in rows}
        assert stream.writer.manifest.statistics.late_rows == len(rows)


@given(COLUMN)
@FEW
def test_an_aggregate_counts_nested_values(column: tuple[DataType, list[Any]]) -> None:
    type_, values = column
    columns, rows = columns_of(type_), rows_of(values)
    operator = RunningAggregate.build(("k",), {"there": agg.count("v")}, input_of(columns), "at")
    with a_folder() as folder:
        stream = TaskStream(folder, operator, [columns], ("at",))
        stream.epoch((0, rows))
        assert {row["k"]: row["there"] for row in stream.rows()} == {
            row["k"]: int(row["v"] is not None) for row in rows
        }


@given(COLUMN)
@FEW
def test_a_mirror_keeps_nested_values(column: tuple[DataType, list[Any]]) -> None:
    type_, values = column
    columns = StructType([*columns_of(type_).fields, StructField("_change_type", StringType(), nullable=False)])
    rows = rows_of(values)
    with a_folder() as folder:
        stream = TaskStream(folder, Materializer.build(("k",), input_of(columns)), [columns], (None,))
        stream.epoch((0, [{**row, "_change_type": "insert"} for row in rows]))
        stream.epoch((0, [{**rows[0], "_change_type": "delete"}]))
        assert spelled(stream.rows()) == spelled(rows[1:])


@pytest.mark.parametrize("ties", ["rows", "rank"])
@given(COLUMN)
@FEW
def test_top_keeps_nested_values(ties: str, column: tuple[DataType, list[Any]]) -> None:
    type_, values = column
    columns = StructType([*columns_of(type_).fields, StructField("_change_type", StringType(), nullable=False)])
    rows = rows_of(values)
    added = [{**row, "_change_type": "insert"} for row in rows]
    with a_folder() as folder:
        operator = Top.build(("k",), input_of(columns), Best(2, "at asc", ties), updating=True)
        stream = TaskStream(folder, OperatorStep.of(operator).with_table(), [columns], (None,))
        stream.epoch((0, added * 2))
        assert spelled(stream.rows()) == spelled(rows * 2)
        stream.epoch((0, [{**row, "_change_type": "delete"} for row in [*rows, rows[0]]]))
        assert spelled(stream.rows()) == spelled(rows[1:])


@given(COLUMN)
@FEW
def test_functions_over_a_partition_return_nested_values(column: tuple[DataType, list[Any]]) -> None:
    type_, values = column
    columns = StructType([*columns_of(type_).fields, StructField("_change_type", StringType(), nullable=False)])
    rows = [{**row, "k": 0} for row in rows_of(values)]
    functions = {"before": over.lag("v"), "first": over.first_value("v"), "place": over.row_number()}
    wanted = [
        {**row, "before": (rows[at - 1] if at else {"v": None})["v"], "first": rows[0]["v"], "place": at + 1}
        for at, row in enumerate(rows)
    ]
    with a_folder() as folder:
        operator = OverPartition.build(("k",), input_of(columns), "at asc", functions, updating=True)
        stream = TaskStream(folder, OperatorStep.of(operator).with_table(), [columns], (None,))
        stream.epoch((0, [{**row, "_change_type": "insert"} for row in rows[1:] * 2]))
        stream.epoch((0, [{**row, "_change_type": "insert"} for row in rows[:1]]))
        stream.epoch((0, [{**row, "_change_type": "delete"} for row in rows[1:]]))
        assert spelled(stream.rows()) == spelled(wanted)


class Keeping(ProcessFunction):
    """Keeps each row under its key in both kinds of state, and gives out what it finds there."""

    def __init__(self, type_: pa.DataType) -> None:
        self._value = pa.field("v", type_)

    @property
    def output(self) -> pa.Schema:
        return pa.schema([("k", pa.int64()), self._value])

    @property
    def state(self) -> dict[str, ValueState | ListState]:
        return {"one": ValueState(pa.schema([self._value])), "many": ListState(pa.schema([self._value]))}

    def on_rows(self, rows: pa.Table, state: KeyedState, context: ProcessContext) -> pa.Table:
        keys = rows.select(["k"])
        state.value("one").put(rows.select(["k", "v"]))
        state.list("many").append(rows.select(["k", "v"]))
        found = state.value("one").get(keys)
        listed = state.list("many").get(keys)
        assert listed.num_rows >= rows.num_rows
        return pa.table([keys.column("k"), found.column("v")], schema=self.output)


@given(COLUMN, st.booleans())
@FEW
def test_a_process_function_keeps_nested_values(column: tuple[DataType, list[Any]], strict: bool) -> None:
    """Also one that declares them as Spark does, with what is never null."""
    type_, values = column
    columns, rows = columns_of(type_), rows_of(values)
    source = input_of(columns)
    function = Keeping(to_arrow_schema(columns).field("v").type if strict else source.schema.field("v").type)
    operator = ProcessOperator.build(function, ("k",), source, "at")
    with a_folder() as folder:
        stream = TaskStream(folder, operator, [columns], ("at",), delay_us=10_000, code=function)
        stream.epoch((0, rows))
        stream.epoch((0, rows))
        assert spelled(stream.rows()) == spelled([{"k": row["k"], "v": row["v"]} for row in rows] * 2)
