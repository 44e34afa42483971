"""The manifest of a stream of several steps: orders once each, totals by shop, and how many shops there are."""

from dataclasses import replace

import pyarrow as pa

from dagster_ckpt.ids import Epoch
from dagster_ckpt.operators import RunningAggregate, agg
from dagster_ckpt.operators.joins.window_join import WindowedJoin
from dagster_ckpt.operators.rows.deduplicate import Deduplicate
from dagster_ckpt.operators.shared.late_rows import KEEP
from dagster_ckpt.operators.shared.window_kinds import Tumbling
from dagster_ckpt.operators.windows.window_aggregate import WindowAggregate
from dagster_ckpt.protocol.change_columns import CHANGE_TYPE
from dagster_ckpt.protocol.manifest.manifest import InputSpec, Manifest, Pipeline, RunRef, SourceIdentity
from tests.worlds.manifests import a_manifest

MINUTE_US = 60_000_000
_TIME = pa.timestamp("us", "UTC")
_ORDERS = InputSpec(
    (SourceIdentity("parquet", "file:///data/orders"),),
    pa.schema([("order", pa.string()), ("shop", pa.string()), ("amount", pa.int64())]),
)
_SALES = pa.schema([("at", _TIME), ("shop", pa.string()), ("amount", pa.int64())])


def shops_counted() -> Pipeline:
    """`deduplicate` by order, then totals by shop, then one row over all of them."""
    orders = Deduplicate.build(("order",), _ORDERS, "first").pipeline
    shops = RunningAggregate.build(("shop",), {"total": agg.sum("amount")}, InputSpec((), orders.output, 0)).pipeline
    changes = InputSpec((), shops.output.append(pa.field(CHANGE_TYPE, pa.string())), 1)
    large = RunningAggregate.build(("total",), {"shops": agg.count()}, changes, updating=True).pipeline
    return replace(large, before=(orders, shops))


def sales_joined() -> Pipeline:
    """Windows of one source, then a join of these with another source. Both steps keep their late rows."""
    sales = InputSpec((SourceIdentity("parquet", "file:///data/sales"),), _SALES)
    visits = InputSpec((SourceIdentity("parquet", "file:///data/visits"),), _SALES.remove(2))
    window = Tumbling(10 * MINUTE_US)
    tens = WindowAggregate.build(("shop",), {"total": agg.sum("amount")}, sales, "at", window, late=KEEP).pipeline
    ends = pa.schema([tens.output.field("shop"), tens.output.field("total"), ("ended", _TIME)])
    inputs = [InputSpec((), ends, 0), visits]
    join = WindowedJoin.build(inputs, [("shop",), ("shop",)], ["ended", "at"], window, late=KEEP).pipeline
    return replace(join, before=(tens,))


def with_runs(pipeline: Pipeline, shards: int = 2) -> Manifest:
    """A manifest whose tables have one run in each shard: that of the n-th table has 10 * n rows and 1000 * n bytes."""
    runs = {
        spec.name: tuple(
            (RunRef(f"state/{spec.name}-{shard}.arrow", 10 * n, 1000 * n, "0123456789abcdef", Epoch(1)),)
            for shard in range(shards)
        )
        for n, spec in enumerate(pipeline.all_tables, 1)
    }
    return a_manifest(pipeline=pipeline, shards=shards, runs=runs, epoch=Epoch(1))
