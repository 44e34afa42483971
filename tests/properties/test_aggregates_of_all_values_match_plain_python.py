"""Aggregates that need all values of a key, or all distinct ones: over rows that come and go, only come, or expire."""

from collections.abc import Sequence
from random import Random
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from dagster_ckpt.operators import agg
from dagster_ckpt.operators.agg import Aggregation
from dagster_ckpt.operators.aggregates.aggregate import RunningAggregate
from dagster_ckpt.operators.shared.window_kinds import Tumbling
from dagster_ckpt.operators.windows.window_aggregate import WindowAggregate
from dagster_ckpt.protocol.manifest.manifest import InputSpec
from tests.properties import aggregates_in_python, steps_in_python
from tests.properties.changing_rows import KIND, RANDOMS, SIZES, Bag, histories
from tests.unit.operators.changing_streams import ONE_TASK, TWO_TASKS, Changing, bag_of
from tests.unit.operators.keyed_streams import Row
from tests.worlds.examples import examples

SCHEMA = pa.schema(
    [("k", pa.string()), ("i", pa.int32()), ("f", pa.float64()), ("s", pa.string()), ("at", pa.timestamp("us"))]
)
VALUES: dict[str, list[Any]] = {
    "k": ["a", "a", "b", None],
    "i": [0, 1, 1, 6, -3, 2**31 - 1, None],
    "f": [0.5, 0.25, -1.25, 0.0, -0.0, 3.0, float("nan"), float("inf"), None],
    "s": ["", "x", "é", None],
    "at": [steps_in_python.EPOCH],
}
ROWS = st.fixed_dictionaries({name: st.sampled_from(values) for name, values in VALUES.items()})
AGGREGATES: dict[str, Aggregation] = {
    "and": agg.bit_and("i"),
    "or": agg.bit_or("i"),
    "xor": agg.bit_xor("i"),
    "middle": agg.median("i"),
    "f_middle": agg.median("f"),
    "p10": agg.percentile("f", 0.1),
    "p100": agg.percentile("i", 1),
    "f_disc": agg.percentile_disc("f", 0.3),
    "s_disc": agg.percentile_disc("s", 1),
    "i_mode": agg.mode("i"),
    "s_mode": agg.mode("s"),
    "i_values": agg.collect_list("i"),
    "f_values": agg.collect_list("f"),
    "f_set": agg.collect_set("f"),
    "i_total": agg.sum_distinct("i"),
    "f_total": agg.sum_distinct("f"),
    "i_mean": agg.avg_distinct("i"),
    "f_mean": agg.avg_distinct("f"),
    "i_kinds": agg.count_distinct("i"),
    "rows": agg.count(),
    "three": agg.collect("s", 3, by="i"),
    "all": agg.collect("f", 100, by="s"),
    "first_row": agg.first(["f", "s"], by="i"),
    "last_row": agg.last(["s", "i", "f"], by="f"),
    "rows_by_i": agg.collect(["f", "s"], 2, by="i"),
    "rows_by_s": agg.collect(["i"], 100, by="s"),
    "digest": agg.user_defined(aggregates_in_python.digests, ["s", "f"], pa.string()),
    "other_digest": agg.user_defined(aggregates_in_python.digests, ["i"], pa.string()),
}
OF_ROWS = {name: one for name, one in AGGREGATES.items() if one.function != "user_defined"}
WORLDS = st.sampled_from([((), 1 << 20), (ONE_TASK, 1 << 28), (TWO_TASKS, 1 << 12)])
History = list[list[tuple[str, int, Row]]]


def wanted(rows: Sequence[Row], aggregates: dict[str, Aggregation]) -> list[Row]:
    return steps_in_python.aggregate(rows, ["k"], aggregates)


@examples(12, 2)
@given(histories(ROWS), st.booleans(), SIZES, RANDOMS, WORLDS)
def test_of_the_rows_that_are_there(
    history: History, appends: bool, size: int, random: Random, world: tuple[Any, int]
) -> None:
    schema = SCHEMA if appends else SCHEMA.append(KIND)
    operator = RunningAggregate.build(("k",), AGGREGATES, InputSpec((), schema), updating=not appends)
    stream, bag = Changing(operator, *world, rebuilds=False), Bag(SCHEMA)
    for steps in history:
        added = [("insert", at, row) for _, at, row in steps]
        stream.epoch(
            *((0, batch.select(schema.names)) for batch in bag.epoch(added if appends else steps, size, random))
        )
        assert bag_of(stream.table()) == bag_of(wanted(bag.rows, AGGREGATES))
    if not bag.rows:
        assert not any(stream.held().values()), "rows that are gone leave nothing behind"


@examples(10, 4)
@given(histories(ROWS), SIZES, RANDOMS)
def test_in_windows(history: History, size: int, random: Random) -> None:
    """Where all state is in the row of the window."""
    source = InputSpec((), SCHEMA)
    stream = Changing(WindowAggregate.build(("k",), OF_ROWS, source, "at", Tumbling(10), early=True))
    bag = Bag(SCHEMA)
    for steps in history:
        added = [("insert", at, row) for _, at, row in steps]
        stream.epoch(*((0, batch.select(SCHEMA.names)) for batch in bag.epoch(added, size, random)))
        table = [{name: value for name, value in row.items() if "window" not in name} for row in stream.table()]
        assert bag_of(table) == bag_of(wanted(bag.rows, OF_ROWS))
