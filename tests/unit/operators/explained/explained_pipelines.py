"""Pipelines of every operator, in each of the ways in which it keeps state."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta

import pyarrow as pa

from dagster_ckpt.operators import AppendOnly, RunningAggregate, agg, over
from dagster_ckpt.operators.joins import IntervalJoin, WindowedJoin
from dagster_ckpt.operators.joins.regular.regular_join import RegularJoin
from dagster_ckpt.operators.process import (
    KeyedState,
    ListState,
    ProcessContext,
    ProcessFunction,
    ProcessOperator,
    ValueState,
)
from dagster_ckpt.operators.rows.changes_from import ChangesFrom
from dagster_ckpt.operators.rows.deduplicate import Deduplicate
from dagster_ckpt.operators.rows.materializer import Materializer
from dagster_ckpt.operators.rows.over.over import OverPartition
from dagster_ckpt.operators.rows.top import Best, Top
from dagster_ckpt.operators.sets.distinct import Distinct
from dagster_ckpt.operators.sets.set_operation import SetOperation
from dagster_ckpt.operators.sets.union_all import UnionAll
from dagster_ckpt.operators.shared.late_rows import DROP, KEEP
from dagster_ckpt.operators.shared.window_kinds import Hopping, Session, Tumbling
from dagster_ckpt.operators.step import OperatorStep, one_group
from dagster_ckpt.operators.windows.session_aggregate import SessionAggregate
from dagster_ckpt.operators.windows.window_aggregate import WindowAggregate
from dagster_ckpt.operators.windows.window_of_table import WindowOfTable
from dagster_ckpt.operators.windows.windowed_state import WindowOptions
from dagster_ckpt.protocol.change_columns import CHANGE_TYPE
from dagster_ckpt.protocol.manifest.manifest import DELIVERY, InputSpec, Pipeline, SourceIdentity

HOUR = 3_600_000_000
TIME = pa.timestamp("us", "UTC")
SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64()), ("at", TIME)])
RIGHT = pa.schema([("k", pa.string()), ("w", pa.int64()), ("bt", TIME)])
SOURCE = SourceIdentity("parquet", "file:///data/in")
KIND = pa.field(CHANGE_TYPE, pa.string())
APPENDS, CHANGES = InputSpec((SOURCE,), SCHEMA), InputSpec((SOURCE,), SCHEMA.append(KIND))
KINDS = InputSpec((SOURCE,), SCHEMA.append(pa.field("_kind", pa.string())))
SIDES, TIMES = (APPENDS, InputSpec((SOURCE,), RIGHT)), ("at", "bt")
CHANGING_SIDES = CHANGES, InputSpec((SOURCE,), RIGHT.append(KIND))
K = ("k",)
ON_K = (K, K)
TOTALS = {"n": agg.count(), "total": agg.sum("v")}
VALUES = {"most": agg.max("v"), "different": agg.count_distinct("v"), "half": agg.median("v")}


class Waiting(ProcessFunction):
    """Keeps a value and a list for each key, and sets timers."""

    output = pa.schema([("k", pa.string())])
    state = {"newest": ValueState(pa.schema([("v", pa.int64())])), "all": ListState(pa.schema([("v", pa.int64())]))}  # noqa: RUF012
    timers_within = timedelta(hours=1)

    def on_rows(self, rows: pa.Table, state: KeyedState, context: ProcessContext) -> pa.Table:
        return self.output.empty_table()

    def on_watermark(self, timers: pa.Table, state: KeyedState, context: ProcessContext) -> pa.Table:
        return self.output.empty_table()


def _windowed(*, early: bool, updating: bool = True) -> Pipeline:
    options = WindowOptions(Tumbling(HOUR), {"most": agg.max("v")}, "at", early, DROP)
    return WindowOfTable.build(K, options, CHANGES if updating else APPENDS, updating=updating).pipeline


def _of_all(updating: bool) -> Pipeline:
    source = CHANGES if updating else APPENDS
    return OperatorStep.of(
        one_group(source, lambda keys, spec: RunningAggregate.build(keys, TOTALS, spec, updating=updating))
    ).pipeline


def pipelines() -> Mapping[str, Pipeline]:
    """Each under a name that says what is special."""
    hour = Tumbling(HOUR)
    ranks = Best(3, "v desc", "rank", "place")
    join = RegularJoin.build
    return {
        "append": AppendOnly.build(APPENDS).pipeline,
        "delivery": replace(
            AppendOnly.build(APPENDS).pipeline,
            operator=DELIVERY,
            parameters={"kind": "postgres", "address": "db", "mode": "upsert", "key": ["k"]},
        ),
        "aggregate": RunningAggregate.build(K, TOTALS, APPENDS).pipeline,
        "aggregate of values": RunningAggregate.build(K, VALUES, APPENDS).pipeline,
        "aggregate of changes": RunningAggregate.build(K, VALUES, CHANGES, updating=True).pipeline,
        "aggregate that expires": RunningAggregate.build(K, VALUES, APPENDS, "at", HOUR, KEEP).pipeline,
        "aggregate of all": _of_all(updating=False),
        "aggregate of all changes": _of_all(updating=True),
        "renamed": OperatorStep.of(RunningAggregate.build(K, TOTALS, replace(APPENDS, work="WHERE (v > 0)")))
        .with_names({"key": "k", "rows": "n", "sum": "total"})
        .pipeline,
        "window": WindowAggregate.build(K, TOTALS, APPENDS, "at", hour, late=KEEP).pipeline,
        "early window": WindowAggregate.build(K, VALUES, APPENDS, "at", hour, True).pipeline,
        "session": SessionAggregate.build(K, TOTALS, APPENDS, "at", Session(HOUR)).pipeline,
        "early session": SessionAggregate.build(K, TOTALS, APPENDS, "at", Session(HOUR), True).pipeline,
        "window of a table": _windowed(early=False),
        "early window of a table": _windowed(early=True),
        "early window of appended rows": _windowed(early=True, updating=False),
        "interval join": IntervalJoin.build(SIDES, ON_K, TIMES, -HOUR, 2 * HOUR, "left").pipeline,
        "interval join of later rows": IntervalJoin.build(SIDES, ON_K, TIMES, 0, HOUR, "inner").pipeline,
        "interval join of earlier rows": IntervalJoin.build(SIDES, ON_K, TIMES, -2 * HOUR, -HOUR, "inner").pipeline,
        "interval semi join": IntervalJoin.build(SIDES, ON_K, TIMES, 0, HOUR, "semi").pipeline,
        "interval anti join": IntervalJoin.build(SIDES, ON_K, TIMES, 0, HOUR, "anti").pipeline,
        "window join": WindowedJoin.build(SIDES, ON_K, TIMES, Hopping(HOUR, HOUR // 2), "left").pipeline,
        "instant join": WindowedJoin.build(SIDES, ON_K, TIMES, None).pipeline,
        "join": join(SIDES, ON_K).pipeline,
        "join of changes": OperatorStep.of(join(CHANGING_SIDES, ON_K, "full")).with_table().pipeline,
        "join with a changing side": join((SIDES[0], CHANGING_SIDES[1]), ON_K, "left").pipeline,
        "semi join": join(SIDES, ON_K, "semi").pipeline,
        "anti join of changes": join(CHANGING_SIDES, ON_K, "anti", wheres=(None, "w > 0")).pipeline,
        "mirror": Materializer.build(K, CHANGES, "v > 0").pipeline,
        "counted mirror": Materializer.build(K, CHANGES, counted=True).pipeline,
        "first rows": Deduplicate.build(K, APPENDS, "first", "at").pipeline,
        "first rows that expire": Deduplicate.build(K, APPENDS, "first", "at", HOUR).pipeline,
        "newest rows": Deduplicate.build(K, APPENDS, "last", "at").pipeline,
        "newest rows that expire": Deduplicate.build(K, APPENDS, "last", "at", HOUR).pipeline,
        "changes from": ChangesFrom.build(K, KINDS, ("k", "v"), ("v",)).pipeline,
        "changes from, deletes expire": ChangesFrom.build(K, KINDS, ("k", "v"), ("v",), (), "at", HOUR).pipeline,
        "top": OperatorStep.of(Top.build(K, APPENDS, Best(3, "v desc"))).with_table().pipeline,
        "top of all": OperatorStep.of(one_group(APPENDS, lambda keys, spec: Top.build(keys, spec, Best(3, "v desc"))))
        .with_table()
        .pipeline,
        "top of changes": Top.build(K, CHANGES, Best(3, "v desc"), updating=True).pipeline,
        "ranks": Top.build(K, APPENDS, ranks).pipeline,
        "ranks of changes": Top.build(K, CHANGES, ranks, updating=True).pipeline,
        "over": OperatorStep.of(OverPartition.build(K, APPENDS, "v asc", {"before": over.lag("v")}))
        .with_table()
        .pipeline,
        "running over": OverPartition.build(
            K, CHANGES, "v asc", {"total": over.sum("v", rows=(None, 0))}, updating=True
        ).pipeline,
        "distinct": Distinct.build(APPENDS).pipeline,
        "distinct of changes": Distinct.build(CHANGES).pipeline,
        "intersect": SetOperation.build([APPENDS, APPENDS], "intersect").pipeline,
        "except all of changes": SetOperation.build([CHANGES, CHANGES], "except_all").pipeline,
        "subtract a table": SetOperation.build([APPENDS, CHANGES], "subtract").pipeline,
        "union": UnionAll.build([APPENDS, CHANGES]).pipeline,
        "process": ProcessOperator.build(Waiting(), K, APPENDS, "at").pipeline,
        "process that expires": ProcessOperator.build(Waiting(), K, APPENDS, "at", expire_after_us=HOUR).pipeline,
    }
