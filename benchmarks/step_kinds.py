"""Each kind of step, declared as users do, and the rows that it gets: what `python -m benchmarks.paired` compares."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.types import DoubleType, LongType, StringType, StructField, StructType, TimestampType

from dagster_ckpt import ListState, ProcessFunction, Stream, agg, hopping, over, session, tumbling
from dagster_ckpt.protocol.change_columns import CHANGE_TYPE, DELETE, INSERT
from dagster_ckpt.runtime.declared.step_parts import Upstream

_TYPES = {
    "k": LongType(),
    "id": LongType(),
    "t": TimestampType(),
    "v": LongType(),
    "x": DoubleType(),
    "s": StringType(),
}
EPOCH_S = 60
"""Each epoch's rows have event times in the next so many seconds."""


class Frame:
    """Stands for a DataFrame of which only the columns are asked for, so that no Spark is needed."""

    def __init__(self, prefix: str, *, changes: bool) -> None:
        fields = [StructField(f"{prefix}{name}", type_) for name, type_ in _TYPES.items()]
        self.schema = StructType([*fields, StructField(CHANGE_TYPE, StringType())] if changes else fields)
        self.columns = self.schema.names


@dataclass(frozen=True)
class Kind:
    """A step over `inputs` inputs, whose `rows` an epoch have `keys` keys; `changes`: half of them go an epoch later.

    The columns of a second input have the names of the first after `prefix`; without one it gets the same rows, an
    epoch later. `work` declares the step.
    """

    work: Callable[..., Stream]
    keys: int = 30_000
    rows: int = 20_000
    inputs: int = 1
    prefix: str = ""
    changes: bool = False

    def stream(self) -> Stream:
        """The step as a stream of its own."""
        return self.work(*(self._input(number) for number in range(self.inputs)))

    def batch(self, epoch: int, number: int) -> pa.RecordBatch:
        """The rows of an input in an epoch, the same ones at each call."""
        coming = self._rows(epoch, number)
        if not self.changes:
            return coming
        going = self._rows(epoch - 1, number).slice(0, self.rows // 2 if epoch else 0)
        tables = [
            pa.Table.from_batches([rows]).append_column(CHANGE_TYPE, pa.array([kind] * rows.num_rows, pa.string()))
            for rows, kind in ((going, DELETE), (coming, INSERT))
        ]
        [batch] = pa.concat_tables(tables).combine_chunks().to_batches()
        return batch

    def _input(self, number: int) -> Stream:
        frame: Any = Frame(self.prefix if number else "", changes=self.changes)
        upstream = Upstream(f"table{number}", (f"{self.prefix if number else ''}id",), changes=True)
        return Stream(frame, upstream=upstream if self.changes else None)

    def _rows(self, epoch: int, number: int) -> pa.RecordBatch:
        if not self.prefix:
            epoch, number = epoch - number, 0
        chance = np.random.default_rng((epoch + 2, number))
        keys, values = chance.integers(0, self.keys, self.rows), chance.integers(0, 1_000, self.rows)
        times = np.sort(chance.integers(epoch * EPOCH_S * 1_000_000, (epoch + 1) * EPOCH_S * 1_000_000, self.rows))
        columns = [
            pa.array(keys),
            pa.array(epoch * self.rows + np.arange(self.rows)),
            pa.array(times).cast(pa.timestamp("us", "UTC")),
            pa.array(values),
            pa.array(chance.random(self.rows)),
            pa.array(np.char.add("name-", (values % 97).astype(str))),
        ]
        prefix = self.prefix if number else ""
        return pa.RecordBatch.from_arrays(columns, names=[f"{prefix}{name}" for name in _TYPES])


class Waiting(ProcessFunction):
    """Keeps the rows of each key; when the watermark has passed one, a row says how many there were, and they go."""

    timers_within = timedelta(seconds=1)
    output = pa.schema([("k", pa.int64()), ("rows", pa.int64())])
    state: Mapping[str, Any] = {"rows": ListState(pa.schema([("v", pa.int64())]))}

    def on_rows(self, rows: pa.Table, state: Any, context: Any) -> None:
        state.list("rows").append(rows.select(["k", "v"]))
        state.timers.set(rows.select(["k"]), rows["t"])

    def on_watermark(self, timers: pa.Table, state: Any, context: Any) -> pa.Table:
        found = state.list("rows").get(timers)
        counts = np.bincount(found["_key"].to_numpy(), minlength=timers.num_rows)
        state.list("rows").clear(timers)
        return pa.table({"k": timers["k"], "rows": pa.array(counts, pa.int64())})


def _timed(rows: Stream, prefix: str = "") -> Stream:
    return rows.with_watermark(f"{prefix}t", "10s").key_by(f"{prefix}k")


def _aggregate(**aggregations: Any) -> Callable[[Stream], Stream]:
    return lambda rows: rows.key_by("k").aggregate(**aggregations)


def _window(window: Any, **options: Any) -> Callable[[Stream], Stream]:
    return lambda rows: _timed(rows).window(window, **options).aggregate(n=agg.count(), total=agg.sum("v"))


def _over(**functions: Any) -> Callable[[Stream], Stream]:
    return lambda rows: rows.key_by("k").over("v asc", **functions)


def _joined(how: str) -> Callable[[Stream, Stream], Stream]:
    return lambda left, right: left.key_by("k").join(right.key_by("rk"), how=how)


_SUMS: Mapping[str, Any] = {"n": agg.count(), "total": agg.sum("v"), "mean": agg.avg("x"), "some": agg.count("s")}
_ENDS = {"least": agg.min("x"), "most": agg.max("v"), "first": agg.first("s", by="id"), "last": agg.last("s", by="t")}
_JOIN: Mapping[str, Any] = {"inputs": 2, "prefix": "r", "rows": 10_000, "keys": 60_000}

KINDS: Mapping[str, Kind] = {
    "append": Kind(lambda rows: rows),
    "aggregate: sums": Kind(_aggregate(**_SUMS)),
    "aggregate: ends": Kind(_aggregate(**_ENDS)),
    "aggregate: moments": Kind(_aggregate(dev=agg.stddev("x"), corr=agg.corr("x", "v"), skew=agg.skewness("x"))),
    "aggregate: bits": Kind(_aggregate(all=agg.bit_and("v"), any=agg.bit_or("v"), odd=agg.bit_xor("v"))),
    "aggregate: distinct": Kind(_aggregate(n=agg.count_distinct("s"), total=agg.sum_distinct("v")), keys=3_000),
    "aggregate: bags": Kind(_aggregate(mid=agg.median("v"), most=agg.mode("s")), keys=3_000, rows=10_000),
    "aggregate: lists": Kind(
        _aggregate(all=agg.collect_list("v"), some=agg.collect("s", 5, by="id")), keys=10_000, rows=10_000
    ),
    "aggregate: sketches": Kind(_aggregate(n=agg.approx_count_distinct("v"), q=agg.approx_quantile("x", 0.9)), 500),
    "aggregate: no keys": Kind(lambda rows: rows.aggregate(**_SUMS)),
    "aggregate: expiring": Kind(
        lambda rows: rows.with_watermark("t", "10s").key_by("k", expire_after="2 minutes").aggregate(**_SUMS)
    ),
    "aggregate: sums of changes": Kind(_aggregate(**_SUMS), changes=True),
    "aggregate: ends of changes": Kind(_aggregate(least=agg.min("x"), most=agg.max("v")), rows=10_000, changes=True),
    "window: tumbling": Kind(_window(tumbling("30s")), keys=3_000),
    "window: tumbling, early": Kind(_window(tumbling("30s"), early=True), keys=3_000),
    "window: hopping": Kind(_window(hopping("60s", "20s")), keys=3_000, rows=10_000),
    "window: session": Kind(_window(session("5s")), keys=3_000),
    "window: of changes": Kind(_window(tumbling("30s"), early=True), keys=3_000, changes=True),
    "join: interval": Kind(lambda a, b: _timed(a).interval_join(_timed(b, "r"), "-5s", "5s"), **_JOIN),
    "join: interval, left": Kind(lambda a, b: _timed(a).interval_join(_timed(b, "r"), "-5s", "5s", "left"), **_JOIN),
    "join: expiring": Kind(lambda a, b: _timed(a).join(_timed(b, "r"), expire_after="30s"), **_JOIN),
    "join: window": Kind(lambda a, b: _timed(a).window_join(_timed(b, "r"), tumbling("30s")), **_JOIN),
    "join: tables": Kind(_joined("inner"), **_JOIN),
    "join: tables, full": Kind(_joined("full"), **_JOIN),
    "join: tables, anti": Kind(_joined("anti"), **_JOIN),
    "join: tables that change": Kind(_joined("left"), **{**_JOIN, "changes": True}),
    "set: distinct": Kind(lambda rows: rows.distinct(), rows=10_000),
    "set: distinct of changes": Kind(lambda rows: rows.distinct(), rows=10_000, changes=True),
    "set: union": Kind(lambda a, b: a.union(b), inputs=2, rows=10_000, changes=True),
    "set: intersect": Kind(lambda a, b: a.intersect(b), inputs=2, rows=10_000),
    "set: except": Kind(lambda a, b: a.subtract(b), inputs=2, rows=10_000),
    "set: except all of changes": Kind(lambda a, b: a.except_all(b), inputs=2, rows=10_000, changes=True),
    "top": Kind(lambda rows: rows.key_by("k").top(3, by="v desc"), keys=3_000, rows=10_000),
    "top: ranks": Kind(
        lambda rows: rows.key_by("k").top(3, "v desc", ties="rank", rank="place"), keys=3_000, rows=10_000
    ),
    "top: of changes": Kind(lambda rows: rows.key_by("k").top(3, by="v desc"), keys=3_000, rows=10_000, changes=True),
    "over: neighbours": Kind(_over(before=over.lag("x"), after=over.lead("x")), keys=3_000, rows=10_000),
    "over: numbers": Kind(_over(place=over.row_number(), rank=over.rank()), keys=3_000, rows=5_000),
    "over: running": Kind(_over(total=over.sum("v"), few=over.avg("x", rows=(-3, 0))), keys=3_000, rows=5_000),
    "over: of changes": Kind(_over(before=over.lag("x")), keys=3_000, rows=5_000, changes=True),
    "deduplicate: first": Kind(lambda rows: rows.key_by("k").deduplicate(), keys=300_000),
    "deduplicate: last": Kind(lambda rows: _timed(rows).deduplicate("last")),
    "deduplicate: expiring": Kind(lambda rows: _timed(rows).deduplicate(expire_after="1 minute")),
    "process function": Kind(lambda rows: _timed(rows).process(Waiting()), keys=3_000),
    "mirror": Kind(lambda rows: rows.with_mirror(), changes=True),
}
