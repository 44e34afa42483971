"""An operator of your own: orders that were not paid within half an hour."""

import tempfile
from datetime import timedelta
from pathlib import Path

import dagster as dg
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from dagster_pyspark import LazyPySparkResource
from pyspark.sql import SparkSession

from dagster_ckpt import (
    CheckpointCoordinatorResource,
    KeyedState,
    ProcessContext,
    ProcessFunction,
    Stream,
    ValueState,
    build_streaming_definitions,
    streaming_asset,
)

FOLDER = Path(tempfile.gettempdir(), "dagster-ckpt-examples", "process_function")
EVENTS = FOLDER / "events"
TIME = pa.timestamp("us", "UTC")


@dg.asset
def events() -> None:
    """Three orders: one is paid in time, one too late, one never."""
    EVENTS.mkdir(parents=True, exist_ok=True)
    at = pa.array([minute * 60_000_000 for minute in (0, 1, 2, 20, 45)], TIME)
    rows = {"order_id": list("abcab"), "event": ["placed"] * 3 + ["paid"] * 2, "at": at}
    pq.write_table(pa.table(rows), EVENTS / "0.parquet")


class Unpaid(ProcessFunction):
    """Works columns of many orders at once: a timer for each order, which looks whether the payment is there."""

    output = pa.schema([("order_id", pa.string()), ("due_at", TIME)])
    state = {"payment": ValueState(pa.schema([("paid_at", TIME)]))}  # noqa: RUF012
    timers_within = timedelta(minutes=30)

    def on_rows(self, rows: pa.Table, state: KeyedState, context: ProcessContext) -> None:
        paid = rows.filter(pc.equal(rows["event"], "paid"))
        state.value("payment").put(pa.table({"order_id": paid["order_id"], "paid_at": paid["at"]}))
        placed = rows.filter(pc.equal(rows["event"], "placed"))
        state.timers.set(placed, pc.add(placed["at"], self.timers_within))

    def on_watermark(self, timers: pa.Table, state: KeyedState, context: ProcessContext) -> pa.Table:
        paid_at = state.value("payment").get(timers)["paid_at"]
        in_time = pc.fill_null(pc.less_equal(paid_at, timers["_time"]), False)
        return timers.filter(pc.invert(in_time)).rename_columns(["order_id", "due_at"])


@streaming_asset(deps=[events])
def unpaid_orders(spark: SparkSession) -> Stream:
    """Each order that was not paid when it was due."""
    rows = spark.readStream.schema("order_id string, event string, at timestamp").parquet(str(EVENTS))
    timed = Stream(rows).with_watermark("at", "5 minutes")
    return timed.key_by("order_id", expire_after="1 day").process(Unpaid(), on_end="flush")


defs = dg.Definitions.merge(
    dg.Definitions(assets=[events]),
    build_streaming_definitions(
        assets=[unpaid_orders],
        checkpoints=CheckpointCoordinatorResource(url=(FOLDER / "checkpoints").as_uri()),
        spark=LazyPySparkResource(spark_config={"spark.master": "local[2]"}),
    ),
)
