"""Distinct rows, union, intersection and difference of inputs that append or change, against counters of rows."""

from collections import Counter
from collections.abc import Callable, Sequence
from math import nan
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagster_ckpt.operators.operator import Operator, change_log_table
from dagster_ckpt.operators.sets.distinct import Distinct
from dagster_ckpt.operators.sets.set_operation import SetOperation
from dagster_ckpt.operators.sets.union_all import UnionAll
from dagster_ckpt.operators.step import OperatorStep
from dagster_ckpt.protocol.manifest.manifest import InputSpec
from tests.properties.changing_rows import KIND, RANDOMS, SIZES, Bag, histories
from tests.unit.operators.changing_streams import ONE_TASK, TWO_TASKS, Changing, Row, spelled, sum_of
from tests.worlds.examples import examples

SCHEMA = pa.schema(
    [("k", pa.string()), ("f", pa.float64()), ("g", pa.float32()), ("s", pa.struct([("x", pa.int64())]))]
)
KEYED = pa.schema([("k", pa.string()), ("n", pa.int16())])
ROWS = st.fixed_dictionaries(
    {
        "k": st.sampled_from(["a", None]),
        "f": st.sampled_from([nan, 0.0, -0.0, None]),
        "g": st.sampled_from([1.5, 1.5, None]),
        "s": st.sampled_from([None, {"x": None}, {"x": 1}]),
        "n": st.sampled_from([1, 1, None]),
    }
)
Counts = Counter[str]
History = list[list[tuple[str, int, Row]]]
Model = Callable[[Counts, Counts], Counts]


def once(rows: Counts) -> Counts:
    return Counter({row: 1 for row, times in rows.items() if times > 0})


MODELS: dict[str, Model] = {
    "distinct": lambda left, _: once(left),
    "union_all": lambda left, right: left + right,
    "intersect": lambda left, right: once(left & right),
    "intersect_all": lambda left, right: left & right,
    "subtract": lambda left, right: Counter({row: 1 for row in left if row not in right}),
    "except_all": lambda left, right: left - right,
}


def operator_of(kind: str, inputs: Sequence[InputSpec]) -> Operator:
    if kind == "distinct":
        return Distinct.build(inputs[0])
    return UnionAll.build(inputs) if kind == "union_all" else SetOperation.build(inputs, kind)


def counted(rows: list[Row], schema: pa.Schema, kind: str) -> Counts:
    def alike(value: Any) -> Any:
        return 0.0 if value == 0.0 and kind != "union_all" else value

    return Counter(spelled({name: alike(row[name]) for name in schema.names}) for row in rows)


def only_inserts(steps: list[tuple[str, int, Row]]) -> list[tuple[str, int, Row]]:
    return [("insert", at, row) for _, at, row in steps]


@pytest.mark.parametrize("kind", MODELS)
@examples(20, 8)
@given(
    st.tuples(histories(ROWS), histories(ROWS)),
    st.tuples(st.booleans(), st.booleans()),
    st.sampled_from([SCHEMA, KEYED]),
    st.sampled_from([(), ONE_TASK, TWO_TASKS]),
    st.booleans(),
    SIZES,
    RANDOMS,
)
def test_changes_are_the_difference_of_two_results(
    kind: str,
    both: tuple[History, History],
    changing: tuple[bool, bool],
    schema: pa.Schema,
    tasks: Any,
    last: bool,
    size: int,
    random: Random,
) -> None:
    left, right = both
    if kind == "distinct":
        right, changing = [], (changing[0], changing[0])
    if not tasks and schema is SCHEMA:
        tasks = ONE_TASK  # dicts find neither NaN nor structs
    inputs = [InputSpec((), schema.append(KIND) if changes else schema) for changes in changing]
    operator = operator_of(kind, inputs)
    one = Changing(OperatorStep.of(operator).with_table() if last else operator, tasks)
    bags = Bag(schema), Bag(schema)
    for number in range(max(len(left), len(right))):
        batches = list[tuple[int, pa.Table]]()
        for side, history in enumerate((left, right)):
            steps = history[number] if number < len(history) else []
            steps = [(kind_, at, {name: row[name] for name in schema.names}) for kind_, at, row in steps]
            steps = steps if changing[side] else only_inserts(steps)
            batches += [(side, batch) for batch in bags[side].epoch(steps, size, random)]
        random.shuffle(batches)
        changes = one.epoch(*batches)
        wanted = MODELS[kind](*(counted(bag.rows, schema, kind) for bag in bags))
        assert sum_of(one.changes) == wanted
        if operator.pipeline.appends:
            assert {change["_change_type"] for change in changes} <= {"insert"}
        elif change_log_table(one.operator) is not None:
            assert counted(one.table(), schema, "union_all") == wanted


def test_what_only_grows_is_known() -> None:
    grows, changes = InputSpec((), KEYED), InputSpec((), KEYED.append(KIND))
    found = {
        (kind, left is grows, right is grows)
        for kind in MODELS
        for left in (grows, changes)
        for right in (grows, changes)
        if operator_of(kind, [left, right]).pipeline.appends
    }
    assert found == {
        ("distinct", True, True),
        ("distinct", True, False),
        ("union_all", True, True),
        ("intersect", True, True),
        ("intersect_all", True, True),
    }
