"""Functions over a partition of rows that are added and retracted, against computing all rows after each epoch."""

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any
from unittest.mock import patch

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from dagster_ckpt.operators import over
from dagster_ckpt.operators.over import Function, Over
from dagster_ckpt.operators.registry import as_last_step
from dagster_ckpt.operators.rows.over.over import OverPartition
from dagster_ckpt.operators.shared.ranked.order_by import OrderColumn, order_columns
from dagster_ckpt.operators.shared.ranked.ordered_tree import OrderedTree
from dagster_ckpt.protocol.manifest.manifest import InputSpec
from tests.properties.changing_rows import KIND, RANDOMS, SIZES, Bag, histories
from tests.properties.test_top_matches_plain_python import in_order, total
from tests.unit.operators.changing_streams import ONE_TASK, TWO_TASKS, Changing, Row, bag_of, sum_of
from tests.worlds.examples import examples

INPUT = pa.schema([("f", pa.float64()), ("k", pa.string()), ("v", pa.int64()), ("d", pa.decimal128(5, 2))])
ROWS = st.fixed_dictionaries(
    {
        "f": st.sampled_from([0.1, 0.2, -0.0, 1e300, -1e300, 1e-300, 0.3, None]) | st.just(float("nan")),
        "k": st.sampled_from(["a", "a", "a", "b", None]),
        "v": st.integers(0, 9) | st.none() | st.sampled_from([1 << 40, -(1 << 33)]),
        "d": st.none() | st.decimals(-999, 999, places=2, allow_nan=False),
    }
)
BOUNDS = st.none() | st.integers(-3, 3)
RANGES: list[over.Frame] = [(None, 0), (0, 0), (0, None), (None, None)]


def frame_by_rows(first: int | None, last: int | None) -> dict[str, over.Frame]:
    return {"rows": (first, last) if first is None or last is None or first <= last else (last, first)}


FRAMES: st.SearchStrategy[Any] = (
    st.just({}) | st.builds(frame_by_rows, BOUNDS, BOUNDS) | st.sampled_from(RANGES).map(lambda frame: {"range": frame})
)
COLUMNS = st.sampled_from(["f", "v", "d"])
FUNCTIONS = st.one_of(
    st.sampled_from([over.row_number(), over.rank(), over.dense_rank(), over.percent_rank(), over.cume_dist()]),
    st.builds(over.ntile, st.integers(1, 5)),
    st.builds(over.lag, COLUMNS, st.integers(-3, 3)),
    st.builds(over.lead, st.just("v"), st.integers(-3, 3), st.sampled_from([None, 7])),
    *(
        st.builds(lambda column, frame, kind=kind: kind(column, **frame), COLUMNS, FRAMES)
        for kind in (over.first_value, over.last_value, over.count, over.sum, over.min, over.max, over.avg)
    ),
    st.builds(lambda column, n, frame: over.nth_value(column, n, **frame), COLUMNS, st.integers(1, 3), FRAMES),
    st.builds(lambda frame: over.count(**frame), FRAMES),
)
SOME = st.dictionaries(st.sampled_from(["one", "two", "three"]), FUNCTIONS, min_size=1, max_size=3)
ORDERS = st.sampled_from(["v asc", "v desc", ["f desc nulls first", "v asc nulls last"], "d asc nulls last"])
WORLDS = st.sampled_from([((), 1 << 20), (ONE_TASK, 1 << 12), (TWO_TASKS, 1 << 28)])


def exact_sum(values: Sequence[Any]) -> Any:
    if isinstance(values[0], float):
        if any(math.isnan(value) for value in values):
            return math.nan
        return float(sum(map(Fraction, values)))
    return sum(values)


def mean(values: Sequence[Any]) -> Any:
    if isinstance(values[0], float):
        return exact_sum(values) / len(values)
    if isinstance(values[0], int):
        return float(sum(values)) / len(values)
    scaled = Fraction(sum(values)) / len(values) * 10**6
    whole = math.floor(abs(scaled) + Fraction(1, 2)) * (1 if scaled >= 0 else -1)
    return pa.scalar(whole, pa.decimal128(20, 0)).as_py().scaleb(-6)


def comparable(value: Any) -> Any:
    return (math.isnan(value), 0.0 if math.isnan(value) else value) if isinstance(value, float) else value


AGGREGATES: Mapping[Function, Callable[[Sequence[Any]], Any]] = {
    Function.SUM: exact_sum,
    Function.AVG: mean,
    Function.MIN: lambda values: min(values, key=comparable),
    Function.MAX: lambda values: max(values, key=comparable),
}


RANKINGS: Mapping[Function, Callable[[int, Sequence[Any], int], Any]] = {
    Function.ROW_NUMBER: lambda place, peer, n: place + 1,
    Function.RANK: lambda place, peer, n: peer.index(peer[place]) + 1,
    Function.DENSE_RANK: lambda place, peer, n: 1 + sum(peer[at] != peer[at - 1] for at in range(1, place + 1)),
    Function.PERCENT_RANK: lambda place, peer, n: peer.index(peer[place]) / (len(peer) - 1) if len(peer) > 1 else 0.0,
    Function.CUME_DIST: lambda place, peer, n: (last_peer(place, peer) + 1) / len(peer),
    Function.NTILE: lambda place, peer, n: next(
        bucket for bucket in range(1, n + 1) if place < bucket * (len(peer) // n) + min(bucket, len(peer) % n)
    ),
}


def last_peer(place: int, peer: Sequence[Any]) -> int:
    return max(at for at, other in enumerate(peer) if other == peer[place])


def frame_of(place: int, peer: Sequence[Any], one: Over) -> range:
    """The places of the row's frame."""
    count = len(peer)
    if one.rows is not None:
        first, last = one.rows
        start, stop = 0 if first is None else place + first, count if last is None else place + last + 1
    else:
        first, last = one.range or (None, 0)
        start, stop = (
            0 if first is None else peer.index(peer[place]),
            count if last is None else last_peer(place, peer) + 1,
        )
    return range(max(start, 0), min(max(stop, 0), count))


def computed(rows: Sequence[Row], place: int, peer: Sequence[Any], one: Over) -> Any:
    """The function of the row at this place in its partition. `peer` is what rows are compared by."""
    if one.function in RANKINGS:
        return RANKINGS[one.function](place, peer, one.n or 0)
    if one.function in (Function.LAG, Function.LEAD):
        other = place + (one.n or 0) * (1 if one.function is Function.LEAD else -1)
        return rows[other][str(one.column)] if 0 <= other < len(rows) else one.default
    frame = frame_of(place, peer, one)
    if one.column is None:
        return len(frame)
    values = [rows[at][one.column] for at in frame]
    if one.function in (Function.FIRST_VALUE, Function.LAST_VALUE, Function.NTH_VALUE):
        at = {Function.FIRST_VALUE: 0, Function.LAST_VALUE: len(values) - 1}.get(one.function, (one.n or 0) - 1)
        return values[at] if 0 <= at < len(values) else None
    values = [value for value in values if value is not None]
    if one.function is Function.COUNT:
        return len(values)
    found = AGGREGATES[one.function](values) if values else None
    return found + 0.0 if isinstance(found, float) else found


def wanted(rows: Sequence[Row], by: Sequence[OrderColumn], functions: Mapping[str, Over]) -> list[Row]:
    found = list[Row]()
    for key in {row["k"] for row in rows}:
        mine = sorted(
            (row for row in rows if row["k"] == key), key=lambda row: [total(row[name]) for name in ("f", "v", "d")]
        )
        for column in reversed(by):
            mine.sort(key=lambda row: in_order(row[column.name], column), reverse=column.descending)
        peer = [[in_order(row[column.name], column) for column in by] for row in mine]
        found += [
            {**row, **{name: computed(mine, place, peer, one) for name, one in functions.items()}}
            for place, row in enumerate(mine)
        ]
    return found


@examples(60)
@given(histories(ROWS), SOME, ORDERS, WORLDS, st.sampled_from([64, 4, 2]), st.booleans(), SIZES, RANDOMS)
def test_over_rows_that_come_and_go(
    epochs: Any, functions: Any, by: Any, world: Any, limit: int, is_last: bool, size: int, random: Any
) -> None:
    operator = OverPartition.build(("k",), InputSpec((), INPUT.append(KIND)), by, functions, updating=True)
    tasks, memory_bytes = world
    last = as_last_step(operator) if is_last else operator
    stream = Changing(last, tasks, memory_bytes, piece=random.choice([1, 3, 1000]))
    bag = Bag(INPUT)
    order = order_columns("over", by, INPUT)
    with patch.object(OrderedTree, "node_rows_max", limit):
        for steps in epochs:
            stream.epoch(*((0, table) for table in bag.epoch(steps, size, random)))
            assert sum_of(stream.changes) == bag_of(wanted(bag.rows, order, functions))
            if is_last:
                assert bag_of(stream.table()) == bag_of(wanted(bag.rows, order, functions))
        if not bag.rows:
            assert set(stream.held().values()) == {0}, "nothing is kept of nothing"


@examples(20)
@given(st.lists(st.lists(ROWS, max_size=12), max_size=5), SOME, ORDERS, WORLDS, st.sampled_from([64, 4, 2]))
def test_over_rows_that_only_come(epochs: Any, functions: Any, by: Any, world: Any, limit: int) -> None:
    stream = Changing(OverPartition.build(("k",), InputSpec((), INPUT), by, functions), *world)
    there = list[Row]()
    order = order_columns("over", by, INPUT)
    with patch.object(OrderedTree, "node_rows_max", limit):
        for fresh in epochs:
            there += fresh
            stream.epoch((0, pa.Table.from_pylist(fresh, schema=INPUT)))
            assert sum_of(stream.changes) == bag_of(wanted(there, order, functions))


BOUNDED = st.one_of(
    st.builds(over.lag, st.just("v"), st.integers(-5, 5)),
    st.builds(over.sum, st.just("v"), rows=st.sampled_from([(-3, 3), (2, 4), (-4, -2), (-1, 1), (0, 5)])),
    st.builds(over.count, range=st.just((0, 0))),
    st.builds(over.last_value, st.just("v"), range=st.just((None, 0))),
)
RUNNING = st.sampled_from(
    [over.row_number(), over.dense_rank(), over.sum("v"), over.max("v", rows=(None, 1)), over.nth_value("v", 3)]
)


@examples(10)
@given(BOUNDED | RUNNING, st.sampled_from([2, 3, 4]), st.sampled_from([300, 20]), RANDOMS)
def test_over_a_partition_of_many_nodes(function: Over, limit: int, values: int, random: Any) -> None:
    operator = OverPartition.build(("k",), InputSpec((), INPUT.append(KIND)), "v asc", {"x": function}, updating=True)
    stream, there = Changing(operator), list[Row]()
    order = order_columns("over", "v asc", INPUT)
    with patch.object(OrderedTree, "node_rows_max", limit):
        for more, less in [(60, 0), (2, 0), (40, 20), (1, 1), (3, 60), (30, 10), (2, 2), (0, 40)]:
            fresh = [{"f": None, "k": "a", "v": random.randrange(values), "d": None} for _ in range(more)]
            random.shuffle(there)
            if random.random() < 0.5:  # those that go are side by side
                there.sort(key=lambda row: row["v"])
            gone, there = there[:less], there[less:] + fresh
            changes = [{**row, KIND.name: "insert"} for row in fresh] + [{**row, KIND.name: "delete"} for row in gone]
            stream.epoch((0, pa.Table.from_pylist(changes, schema=INPUT.append(KIND))))
            assert sum_of(stream.changes) == bag_of(wanted(there, order, {"x": function}))
