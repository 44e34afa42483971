"""Functions over a partition of rows that are added and retracted, against computing all rows after each epoch."""

from collections.abc import Mapping, Sequence
from typing import Any
from unittest.mock import patch

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from dagster_ckpt.operators import over
from dagster_ckpt.operators.over import Over
from dagster_ckpt.operators.rows.over.over import OverPartition
from dagster_ckpt.operators.shared.ranked.order_by import OrderColumn, order_columns
from dagster_ckpt.operators.shared.ranked.ordered_tree import OrderedTree
from dagster_ckpt.operators.step import OperatorStep
from dagster_ckpt.protocol.manifest.manifest import InputSpec
from tests.properties.changing_rows import KIND, RANDOMS, SIZES, Bag, histories
from tests.properties.over_in_python import computed
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


def wanted(rows: Sequence[Row], by: Sequence[OrderColumn], functions: Mapping[str, Over]) -> list[Row]:
    found = list[Row]()
    for key in {row["k"] for row in rows}:
        mine = sorted(
            (row for row in rows if row["k"] == key),
            key=lambda row: [total(row[name]) for name in ("f", "v", "d", "e") if name in row],
        )
        for column in reversed(by):
            mine.sort(key=lambda row: in_order(row[column.name], column), reverse=column.descending)
        peer = [[in_order(row[column.name], column) for column in by] for row in mine]
        found += [
            {**row, **{name: computed(mine, place, peer, one, by) for name, one in functions.items()}}
            for place, row in enumerate(mine)
        ]
    return found


@examples(60, 10)
@given(histories(ROWS), SOME, ORDERS, WORLDS, st.sampled_from([64, 4, 2]), st.booleans(), SIZES, RANDOMS)
def test_over_rows_that_come_and_go(
    epochs: Any, functions: Any, by: Any, world: Any, limit: int, is_last: bool, size: int, random: Any
) -> None:
    operator = OverPartition.build(("k",), InputSpec((), INPUT.append(KIND)), by, functions, updating=True)
    tasks, memory_bytes = world
    last = OperatorStep.of(operator).with_table() if is_last else operator
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


@examples(20, 3)
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


IN_TIME = pa.schema([("k", pa.string()), ("v", pa.int64()), ("e", pa.int64())])
TIMES = st.none() | st.integers(0, 30) | st.sampled_from([(1 << 63) - 1, -(1 << 63)])
ROWS_IN_TIME = st.fixed_dictionaries({"k": st.sampled_from(["a", "a", "b"]), "v": TIMES, "e": TIMES})


def frame_by_distance(first: int | None, last: int | None) -> over.Frame:
    return (first, last) if first is None or last is None or first <= last else (last, first)


DISTANCES = st.builds(frame_by_distance, *(2 * [st.none() | st.integers(-5, 5)]))
BY_DISTANCE = st.one_of(
    st.builds(lambda frame: over.count(range=frame), DISTANCES),
    *(
        st.builds(lambda frame, kind=kind: kind("e", range=frame), DISTANCES)
        for kind in (over.first_value, over.last_value, over.max, over.count)
    ),
    st.builds(lambda n, frame: over.nth_value("e", n, range=frame), st.integers(1, 3), DISTANCES),
)
SESSIONS = st.just(over.session_start("e"))
MEASURED = st.one_of(
    st.tuples(st.sampled_from(["v asc", "v desc", "v asc nulls last"]), BY_DISTANCE),
    st.tuples(st.sampled_from(["v asc", "v asc nulls last"]), SESSIONS),
)


@examples(60, 12)
@given(histories(ROWS_IN_TIME), MEASURED, WORLDS, st.sampled_from([64, 4, 2]), SIZES, RANDOMS)
def test_values_of_the_order_are_measured(
    epochs: Any, measured: Any, world: Any, limit: int, size: int, random: Any
) -> None:
    by, function = measured
    operator = OverPartition.build(("k",), InputSpec((), IN_TIME.append(KIND)), by, {"x": function}, updating=True)
    tasks, memory_bytes = world
    stream, bag = Changing(operator, tasks, memory_bytes, piece=random.choice([1, 3, 1000])), Bag(IN_TIME)
    with patch.object(OrderedTree, "node_rows_max", limit):
        for steps in epochs:
            stream.epoch(*((0, table) for table in bag.epoch(steps, size, random)))
            assert sum_of(stream.changes) == bag_of(
                wanted(bag.rows, order_columns("over", by, IN_TIME), {"x": function})
            )
        if not bag.rows:
            assert set(stream.held().values()) == {0}, "nothing is kept of nothing"


BOUNDED = st.one_of(
    st.builds(
        over.sum, st.just("v"), range=st.sampled_from([(-3, 3), (2, 9), (-9, -2), (0, 5), (None, -7), (None, 4)])
    ),
    st.builds(over.last_value, st.just("v"), range=st.sampled_from([(None, -7), (-20, -5), (None, 3)])),
    st.builds(over.lag, st.just("v"), st.integers(-5, 5)),
    st.builds(over.sum, st.just("v"), rows=st.sampled_from([(-3, 3), (2, 4), (-4, -2), (-1, 1), (0, 5)])),
    st.builds(over.count, range=st.just((0, 0))),
    st.builds(over.last_value, st.just("v"), range=st.just((None, 0))),
)
RUNNING = st.sampled_from(
    [over.row_number(), over.dense_rank(), over.sum("v"), over.max("v", rows=(None, 1)), over.nth_value("v", 3)]
)


SIDE_BY_SIDE = st.lists(BOUNDED | RUNNING, min_size=1, max_size=1) | st.lists(BOUNDED, min_size=2, max_size=3)


@examples(20, 4)
@given(SIDE_BY_SIDE, st.sampled_from([2, 3, 4]), st.sampled_from([300, 20]), RANDOMS)
def test_over_a_partition_of_many_nodes(together: list[Over], limit: int, values: int, random: Any) -> None:
    functions = {f"x{number}": function for number, function in enumerate(together)}
    operator = OverPartition.build(("k",), InputSpec((), INPUT.append(KIND)), "v asc", functions, updating=True)
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
            assert sum_of(stream.changes) == bag_of(wanted(there, order, functions))
