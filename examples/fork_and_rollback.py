"""A pin, a fork to try things on, and a rollback: the next run works again what came after it."""

import os
import tempfile
from pathlib import Path

import dagster as dg
import pyarrow as pa
import pyarrow.parquet as pq
from dagster_pyspark import LazyPySparkResource
from pyspark.sql import SparkSession

from dagster_ckpt import (
    CheckpointCoordinatorResource,
    CheckpointStore,
    Stream,
    agg,
    build_streaming_definitions,
    streaming_asset,
)

FOLDER = Path(tempfile.gettempdir(), "dagster-ckpt-examples", "fork_and_rollback")
MOVES = FOLDER / "moves"
URL = (FOLDER / "checkpoints").as_uri()


@dg.asset
def moves() -> None:
    """Two more files of what came into the store and what left it."""
    MOVES.mkdir(parents=True, exist_ok=True)
    for quantity in (5, -2):
        number = len(list(MOVES.iterdir()))
        path = MOVES / f"{number}.parquet"
        pq.write_table(pa.table({"item": ["tent"], "quantity": [quantity]}), path)
        os.utime(path, (number, number))  # Spark takes the oldest file first


@streaming_asset(deps=[moves])
def stock(spark: SparkSession) -> Stream:
    """How many of each item are there. Each file is an epoch."""
    rows = spark.readStream.schema("item string, quantity long").option("maxFilesPerTrigger", 1).parquet(str(MOVES))
    return Stream(rows).key_by("item").aggregate(quantity=agg.sum("quantity"))


@dg.asset(deps=[stock])
def what_if() -> dg.MaterializeResult[None]:
    """Keep the newest epoch by name, fork it without a copy, and take the stream back to its oldest epoch."""
    stream = CheckpointStore(URL).stream("stock")
    newest, oldest = stream.latest().epoch, stream.epochs()[-1].epoch
    stream.pin(newest, f"before-rollback-{newest}")
    fork = stream.fork(f"dev/stock-{newest}", newest)
    shown = stream.rollback(oldest)
    return dg.MaterializeResult(metadata={"forked": fork.read().to_pylist(), "rolled_back_to": shown.epoch})


defs = dg.Definitions.merge(
    dg.Definitions(assets=[moves, what_if]),
    build_streaming_definitions(
        assets=[stock],
        checkpoints=CheckpointCoordinatorResource(url=URL),
        spark=LazyPySparkResource(spark_config={"spark.master": "local[2]"}),
    ),
)
