"""The row count in an epoch's manifest is the number of rows that a reader of the stream's table gets.

For every kind of operator, over real tasks and commits, with rows that update, expire, come late and are retracted.
"""

import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

from dagster_ckpt import agg, hopping, session, tumbling
from dagster_ckpt.operators.aggregates.aggregate import RunningAggregate
from dagster_ckpt.operators.joins import IntervalJoin, RegularJoin, WindowedJoin
from dagster_ckpt.operators.operator import Operator
from dagster_ckpt.operators.process import KeyedState, ProcessContext, ProcessFunction, ValueState
from dagster_ckpt.operators.process.process_operator import ProcessOperator
from dagster_ckpt.operators.rows.append import AppendOnly
from dagster_ckpt.operators.rows.changes_from import ChangesFrom
from dagster_ckpt.operators.rows.deduplicate import Deduplicate
from dagster_ckpt.operators.rows.materializer import Materializer
from dagster_ckpt.operators.step import OperatorStep
from dagster_ckpt.operators.windows.session_aggregate import SessionAggregate
from dagster_ckpt.operators.windows.window_aggregate import WindowAggregate
from tests.worlds.task_stream import Row, TaskStream, input_of

S = 1_000_000
COLUMNS = StructType([StructField("k", LongType()), StructField("at", TimestampType()), StructField("v", StringType())])
OTHER = StructType([StructField("k", LongType()), StructField("bt", TimestampType()), StructField("w", LongType())])
KINDS = StructType([*COLUMNS.fields, StructField("_kind", StringType()), StructField("n", LongType())])
CHANGES = StructType([*COLUMNS.fields, StructField("_change_type", StringType(), nullable=False)])
IN, CHANGED = input_of(COLUMNS), input_of(CHANGES)
AGGREGATES = {"n": agg.count(), "kinds": agg.count_distinct("v"), "all_kinds": agg.count_distinct("at")}


class Doubling(ProcessFunction):
    """Two rows for each key of a chunk, and state under each."""

    @property
    def output(self) -> pa.Schema:
        return pa.schema([("k", pa.int64())])

    @property
    def state(self) -> dict[str, ValueState]:
        return {"seen": ValueState(pa.schema([("k2", pa.int64())]))}

    def on_rows(self, rows: pa.Table, state: KeyedState, context: ProcessContext) -> pa.Table:
        keys = rows.select(["k"]).group_by("k").aggregate([])
        state.value("seen").put(keys.append_column("k2", keys.column("k")))
        return pa.concat_tables([keys, keys]).cast(self.output)


def windowed(window: Any, early: bool) -> Operator:
    build: Any = SessionAggregate.build if window == session("2s") else WindowAggregate.build
    operator: Operator = build(("k",), {"n": agg.count(), "kinds": agg.count_distinct("v")}, IN, "at", window, early)
    return operator


def joined(how: str, windowed: bool) -> Operator:
    inputs, keys, times = [IN, input_of(OTHER)], (("k",), ("k",)), ("at", "bt")
    if windowed:
        return WindowedJoin.build(inputs, keys, times, tumbling("2s"), how)
    return IntervalJoin.build(inputs, keys, times, -S, S, how)


def tables_joined(how: str, row_keys: Any) -> Operator:
    return OperatorStep.of(RegularJoin.build([CHANGED, input_of(OTHER)], (("k",), ("k",)), how, row_keys)).with_table()


OPERATORS: dict[str, Callable[[], Operator | AppendOnly]] = {
    "append": lambda: AppendOnly.build(IN),
    "aggregate": lambda: RunningAggregate.build(("k",), AGGREGATES, IN, "at"),
    "aggregate, keys expire": lambda: RunningAggregate.build(("k",), {"n": agg.count()}, IN, "at", 3 * S),
    "aggregate, late rows kept": lambda: RunningAggregate.build(("k",), {"n": agg.count()}, IN, "at", 3 * S, "keep"),
    "aggregate, updating": lambda: RunningAggregate.build(("k",), {"n": agg.count()}, CHANGED, updating=True),
    "mirror": lambda: Materializer.build(("k",), CHANGED),
    **{
        f"changes from, deletes expire after {expire_us}": partial(
            ChangesFrom.build, ("k",), input_of(KINDS), ("k", "v"), ("n",), (), "at", expire_us
        )
        for expire_us in (None, 3 * S)
    },
    "mirror of rows that may be equal": lambda: Materializer.build(("v",), CHANGED, counted=True),
    **{
        f"{how} join of tables": partial(tables_joined, how, row_keys)
        for how, row_keys in (("left", (None, None)), ("full", (None, None)), ("semi", (("k",), None)))
    },
    "process": lambda: ProcessOperator.build(Doubling(), ("k",), IN, "at"),
    **{
        f"deduplicate, {keep} of {expire_us}": partial(Deduplicate.build, ("k",), IN, keep, "at", expire_us, "drop")
        for keep in ("first", "last")
        for expire_us in (None, 3 * S)
    },
    **{
        f"{window}, early={early}": partial(windowed, window, early)
        for window in (tumbling("2s"), hopping("4s", "2s"), session("2s"))
        for early in (False, True)
    },
    **{
        f"{how} join, windowed={windowed}": partial(joined, how, windowed)
        for how in ("inner", "full", "anti")
        for windowed in (False, True)
    },
}


def changes(chance: random.Random, live: dict[int, Row]) -> list[Row]:
    """What one epoch changes in an upstream's table: at most one change of each key."""
    found: list[Row] = []
    for key in chance.sample(range(8), 4):
        row = {"k": key, "at": chance.randrange(60) * S, "v": chance.choice("abc")}
        if before := live.pop(key, None):
            kept = chance.random() < 0.5
            found.append({**before, "_change_type": "update_preimage" if kept else "delete"})
            if not kept:
                continue
        found.append({**row, "_change_type": "update_postimage" if before else "insert"})
        live[key] = row
    return found


@pytest.mark.parametrize("name", OPERATORS)
def test_after_every_epoch_and_after_a_rollback(name: str, tmp_path: Path) -> None:
    chance, operator, live = random.Random(name), OPERATORS[name](), dict[int, Row]()
    updating = "_change_type" in operator.pipeline.inputs[0].schema.names
    kinds = "_kind" in operator.pipeline.inputs[0].schema.names
    columns = [CHANGES if updating else KINDS if kinds else COLUMNS, OTHER][: len(operator.pipeline.inputs)]
    times = (None,) if isinstance(operator, AppendOnly) else operator.event_times
    stream = TaskStream(tmp_path, operator, columns, times, delay_us=S, code=Doubling())
    counted = []
    for epoch in range(7):
        keys = [(chance.randrange(8), (epoch + chance.randrange(-3, 2)) * S) for _ in range(10)]
        left = [{"k": k, "at": at, "v": chance.choice("abc")} for k, at in keys[:5]]
        if kinds:
            left = [
                {**row, "_kind": chance.choice(["put", "delete"]), "n": 10 * epoch + n} for n, row in enumerate(left)
            ]
        right = [{"k": k, "bt": at, "w": 1} for k, at in keys[5:]] if len(columns) > 1 else []
        manifest = stream.epoch((0, changes(chance, live) if updating else left), (1, right))
        counted.append((manifest.epoch, manifest.table_rows))
        assert manifest.table_rows == len(stream.rows()), manifest.epoch
    assert max(rows or 0 for _, rows in counted) > 2
    epoch, rows = counted[3]
    stream.history.rollback(epoch, fence=True)
    assert stream.history.manifest().table_rows == rows == len(stream.rows())
