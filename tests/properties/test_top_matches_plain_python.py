"""The best rows of each key over rows that are added and retracted, against sorting all rows after each epoch."""

import math
from collections.abc import Sequence
from contextlib import nullcontext
from random import Random
from typing import Any
from unittest.mock import patch

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from dagster_ckpt.operators.operator import Operator
from dagster_ckpt.operators.rows.top import Best, Top
from dagster_ckpt.operators.shared.ranked.order_by import OrderColumn, order_columns
from dagster_ckpt.operators.shared.ranked.rank_tree import RankTree
from dagster_ckpt.operators.step import OperatorStep
from dagster_ckpt.protocol.manifest.manifest import InputSpec
from tests.unit.operators.changing_streams import ONE_TASK, TWO_TASKS, Changing, Row, bag_of, sum_of
from tests.worlds.examples import examples

INPUT = pa.schema([("f", pa.float64()), ("k", pa.string()), ("s", pa.string()), ("l", pa.list_(pa.int64()))])
KIND = pa.field("_change_type", pa.string(), nullable=False)
ROWS = st.fixed_dictionaries(
    {
        "f": st.sampled_from([float("nan"), 0.0, -0.0, 1.5, -2.5, None]),
        "k": st.sampled_from(["a", "a", "b", None]),
        "s": st.sampled_from(["x", "y", None]),
        "l": st.sampled_from([None, [], [1], [1, None]]),
    }
)
EPOCHS = st.lists(st.lists(ROWS, max_size=12), min_size=1, max_size=5)
BESTS = st.builds(
    Best,
    st.sampled_from([1, 2, 5]),
    st.sampled_from(["f desc", "s asc", ["s desc nulls first", "f asc nulls last"], ["f asc", "s desc"]]),
    st.sampled_from(["rows", "rank", "dense_rank"]),
    st.sampled_from([None, "place"]),
) | st.sampled_from(
    [Best.for_deduplicate("first", []), Best.for_deduplicate("first", ["s", "f"]), Best.for_deduplicate("last", ["f"])]
)
WORLDS = st.sampled_from([((), 1 << 20), (ONE_TASK, 1 << 12), (TWO_TASKS, 1 << 28)])
LEAVES = st.sampled_from([None, 2])


def total(value: Any) -> Any:
    """The order of `row_order`: null is the greatest, and -0.0 less than 0.0."""
    if value is None:
        return (1,)
    if isinstance(value, float):
        return (0, math.isnan(value), 0.0 if math.isnan(value) else value, math.copysign(1, value) > 0)
    return (0, [total(each) for each in value]) if isinstance(value, list) else (0, value)


def in_order(value: Any, column: OrderColumn) -> Any:
    if value is None:
        return (0,) if column.nulls_first != column.descending else (2,)
    return (1, math.isnan(value), 0.0 if math.isnan(value) else value) if isinstance(value, float) else (1, value)


def best_of(rows: Sequence[Row], best: Best, by: Sequence[OrderColumn]) -> list[Row]:
    """The best rows of one key."""
    rows = sorted(rows, key=lambda row: [total(row[name]) for name in ("f", "s", "l")])
    for column in reversed(by):
        rows.sort(key=lambda row: in_order(row[column.name], column), reverse=column.descending)
    found = list[Row]()
    values = list[Any]()
    for number, row in enumerate(rows, 1):
        values.append([in_order(row[column.name], column) for column in by])
        distinct = [value for at, value in enumerate(values) if at == 0 or value != values[at - 1]]
        place = {"rows": number, "rank": values.index(values[-1]) + 1, "dense_rank": len(distinct)}[best.ties]
        if place <= best.n:
            found.append(row if best.rank is None else {**row, best.rank: place})
    return found


def wanted(rows: Sequence[Row], best: Best) -> list[Row]:
    by = order_columns("top", best.by, INPUT) if best.by else []
    keys = {row["k"] for row in rows}
    return [found for key in keys for found in best_of([row for row in rows if row["k"] == key], best, by)]


def batches_of(rows: list[Row], schema: pa.Schema, random: Random) -> list[tuple[int, pa.Table]]:
    random.shuffle(rows)
    size = random.choice([1, 3, 100])
    return [(0, pa.Table.from_pylist(rows[at : at + size], schema=schema)) for at in range(0, len(rows), size)]


def split(size: int | None) -> Any:
    """As if a leaf had so many rows at most."""
    return nullcontext() if size is None else patch.object(RankTree, "leaf_rows_max", size)


def last_or_not(operator: Top, is_last: bool) -> Operator:
    return OperatorStep.of(operator).with_table() if is_last else operator


@examples(20, 4)
@given(EPOCHS, BESTS, WORLDS, LEAVES, st.booleans(), st.randoms(use_true_random=False))
def test_top_of_rows_that_come_and_go(
    epochs: list[list[Row]], best: Best, world: Any, leaf: int | None, is_last: bool, random: Random
) -> None:
    schema = INPUT.append(KIND)
    operator = Top.build(("k",), InputSpec((), schema), best, updating=True)
    tasks, memory_bytes = world
    stream = Changing(last_or_not(operator, is_last), tasks, memory_bytes, piece=random.choice([1, 3, 1000]))
    there = list[Row]()
    with split(leaf):
        for fresh in epochs:
            random.shuffle(there)
            gone = [there.pop() for _ in range(random.randrange(len(there) + 1))]
            there += fresh
            came_and_went = random.sample(fresh, min(len(fresh), 2))
            added = [{**row, "_change_type": "insert"} for row in fresh + came_and_went]
            retracted = [{**row, "_change_type": "delete"} for row in gone + came_and_went]
            stream.epoch(*batches_of(added + retracted, schema, random))
            assert sum_of(stream.changes) == bag_of(wanted(there, best))
            if is_last:
                assert bag_of(stream.table()) == bag_of(wanted(there, best))
        if not there:
            assert set(stream.held().values()) == {0}, "nothing is kept of nothing"


@examples(20, 4)
@given(EPOCHS, BESTS, WORLDS, st.booleans(), st.randoms(use_true_random=False))
def test_top_of_rows_that_only_come(
    epochs: list[list[Row]], best: Best, world: Any, is_last: bool, random: Random
) -> None:
    stream = Changing(last_or_not(Top.build(("k",), InputSpec((), INPUT), best), is_last), *world)
    there = list[Row]()
    for fresh in epochs:
        there += fresh
        stream.epoch(*batches_of(fresh.copy(), INPUT, random))
        assert sum_of(stream.changes) == bag_of(wanted(there, best))
        assert stream.held()["ranked"] <= best.n * len({row["k"] for row in there}), "only the best are kept"
