"""Which columns a join gives, and what may be null in them."""

import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from dagster_ckpt.ids import Epoch
from dagster_ckpt.operators import EpochContext
from dagster_ckpt.operators.joins import IntervalJoin, JoinType, WindowedJoin
from dagster_ckpt.operators.operator import keys_of_inputs
from dagster_ckpt.operators.shared.late_rows import late_table
from dagster_ckpt.operators.shared.window_kinds import Hopping, Tumbling
from tests.unit.operators.dict_state import DictState
from tests.unit.operators.joined_streams import (
    KEYS,
    SHARDS,
    TIME,
    TIMES,
    Row,
    inputs,
    interval_join,
    rows_of,
    window_join,
)

LEFT = pa.schema(
    [
        pa.field("v", pa.int64(), nullable=False),
        pa.field("k", pa.string(), nullable=False),
        pa.field("n", pa.int32()),
        pa.field("at", TIME, nullable=False),
    ]
)
RIGHT = pa.schema(
    [
        pa.field("bt", TIME, nullable=False),
        pa.field("m", pa.int32(), nullable=False),
        pa.field("k", pa.string()),
        pa.field("w", pa.map_(pa.string(), pa.int64()), nullable=False),
    ]
)
BOTH_KEYS = (("k", "n"), ("k", "m"))


def of(how: str) -> IntervalJoin:
    return IntervalJoin.build(inputs((LEFT, RIGHT)), BOTH_KEYS, TIMES, 0, 1, how)


def nullable(schema: pa.Schema) -> set[str]:
    return {field.name for field in schema if field.nullable}


def test_a_key_of_one_name_is_one_column() -> None:
    assert of("inner").pipeline.output.names == ["v", "k", "n", "at", "bt", "m", "w"]
    assert of("semi").pipeline.output == of("anti").pipeline.output == LEFT


@pytest.mark.parametrize(
    ("how", "null"),
    [
        ("inner", {"n"}),
        ("left", {"n", "bt", "m", "w"}),
        ("right", {"v", "k", "n", "at"}),
        ("full", {"v", "k", "n", "at", "bt", "m", "w"}),
    ],
)
def test_what_a_join_type_leaves_empty_is_nullable(how: str, null: set[str]) -> None:
    assert nullable(of(how).pipeline.output) == null


def test_bounds_of_a_window_come_after_the_key() -> None:
    operator = WindowedJoin.build(inputs((LEFT, RIGHT)), BOTH_KEYS, TIMES, Tumbling(10), "left")
    assert operator.pipeline.output.names == ["v", "k", "n", "window_start", "window_end", "at", "bt", "m", "w"]
    assert operator.pipeline.output.field("window_end").type == TIME
    assert operator.pipeline.output.field("window_start").nullable
    inner = WindowedJoin.build(inputs((LEFT, RIGHT)), BOTH_KEYS, TIMES, Tumbling(10))
    assert nullable(inner.pipeline.output) == {"n"}
    semi = WindowedJoin.build(inputs((LEFT, RIGHT)), BOTH_KEYS, TIMES, Tumbling(10), "semi")
    assert semi.pipeline.output.names == ["v", "k", "n", "window_start", "window_end", "at"]
    instant = WindowedJoin.build(inputs((LEFT, RIGHT)), BOTH_KEYS, TIMES, None)
    assert instant.pipeline.output == of("inner").pipeline.output


def test_columns_that_a_window_adds_may_be_the_users_where_there_is_no_window() -> None:
    left = LEFT.append(pa.field("window_start", TIME))
    operator = WindowedJoin.build(inputs((left, RIGHT)), BOTH_KEYS, TIMES, None, "full")
    state = DictState.of(operator.pipeline)
    context = EpochContext(Epoch(1), SHARDS, 2, 100, 1 << 20)
    rows = pa.table([[1], ["a"], [2], [None], [7]], schema=left)
    operator.on_rows(0, np.zeros(1, dtype=np.uint64), rows, state, context)
    (changes,) = operator.finish(state, context)
    assert changes.rows.column("window_start").cast(pa.int64()).to_pylist() == [7]


@pytest.mark.parametrize("window", [True, False])
def test_the_event_time_may_be_the_key(*, window: bool) -> None:
    schemas = [pa.schema([("at", TIME), (name, pa.int64())]) for name in "vw"]
    both = (("at",), ("at",))
    operator: IntervalJoin | WindowedJoin
    if window:
        operator = WindowedJoin.build(inputs(schemas), both, ("at", "at"), None, "full")
    else:
        operator = IntervalJoin.build(inputs(schemas), both, ("at", "at"), 0, 0, "full")
    state = DictState.of(operator.pipeline)
    context = EpochContext(Epoch(1), SHARDS, 2, None, 1 << 20)
    for number, times in enumerate([[5, 6, None], [5, 7, None]]):
        rows = pa.table([times, [1, 2, 3]], schema=schemas[number])
        operator.on_rows(number, np.array([5, 6 + number, 9], dtype=np.uint64), rows, state, context)
    out = rows_of_changes(operator, state, context)
    state.next_epoch()
    out += rows_of_changes(operator, state, replace(context, epoch=Epoch(2), watermark_us=99))
    wanted = [(5, 1, 1), (6, 2, None), (7, None, 2), (None, 3, None), (None, None, 3)]
    assert sorted(out, key=repr) == sorted(wanted, key=repr)


def rows_of_changes(operator: IntervalJoin | WindowedJoin, state: DictState, context: EpochContext) -> list[Row]:
    names = operator.pipeline.output.names
    return [row for changes in operator.finish(state, context) for row in rows_of(changes.rows.select(names))]


@pytest.mark.parametrize("how", list(JoinType))
def test_any_type_of_column_comes_through(how: JoinType) -> None:
    operator = of(how)
    state = DictState.of(operator.pipeline)
    context = EpochContext(Epoch(1), SHARDS, 2, 8, 1 << 20)
    lefts = pa.table([[1, 2], ["a", "b"], [5, 5], [9, 9]], schema=LEFT)
    rights = pa.table([[9, 9], [5, 5], ["a", "c"], [[("x", 1)], [("y", 2)]]], schema=RIGHT)
    for number, rows in enumerate((lefts, rights)):
        given = rows.select(operator.pipeline.inputs[number].schema.names)
        operator.on_rows(number, np.array([3, 3], dtype=np.uint64), given, state, context)
    rows = [row for changes in operator.finish(state, context) for row in changes.rows.to_pylist()]
    state.next_epoch()
    context = replace(context, epoch=Epoch(2), watermark_us=99)
    rows += [row for changes in operator.finish(state, context) for row in changes.rows.to_pylist()]
    found = sorted((str(row["k"]), row["v"], (row.get("w") or [None])[0]) for row in rows)
    pair, alone, other = ("a", 1, ("x", 1)), ("b", 2, None), ("c", None, ("y", 2))
    assert (
        found
        == {
            "inner": [pair],
            "left": [pair, alone],
            "right": [pair, other],
            "full": [pair, alone, other],
            "semi": [("a", 1, None)],
            "anti": [alone],
        }[how]
    )


@pytest.mark.parametrize("late", ["drop", "keep"])
@pytest.mark.parametrize(
    "operator",
    [
        *(interval_join(-(2**60), 5, how) for how in JoinType),
        *(window_join(Hopping(10, 5, 1), how) for how in JoinType),
        window_join(Tumbling(10)),
        window_join(None),
    ],
)
def test_an_operator_built_again_from_plain_json_is_the_same(operator: IntervalJoin | WindowedJoin, late: str) -> None:
    parameters = json.loads(json.dumps({**operator.pipeline.parameters, "late": late}))
    pipeline = replace(operator.pipeline, parameters=parameters)
    if late == "keep":
        pipeline = replace(pipeline, inputs=inputs())
    again = type(operator).from_pipeline(pipeline)
    assert type(operator).from_pipeline(again.pipeline) == again
    assert again.pipeline.output == operator.pipeline.output
    assert again.event_times == TIMES
    assert keys_of_inputs(again.pipeline) == KEYS
    assert [table.name for table in again.pipeline.tables if table.name.startswith("_late")] == (
        [late_table(0), late_table(1)] if late == "keep" else []
    )
