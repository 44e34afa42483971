"""The past of a stream: any epoch that is retained, and what changed since."""

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

FOLDER = Path(tempfile.gettempdir(), "dagster-ckpt-examples", "time_travel")
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
def then_and_now() -> dg.MaterializeResult[None]:
    """The table at the oldest epoch that is retained and at the newest, and the change log between them."""
    stream = CheckpointStore(URL).stream("stock")
    oldest, newest = stream.epochs()[-1], stream.latest()
    return dg.MaterializeResult(
        metadata={
            "then": stream.read(epoch=oldest.epoch).to_pylist(),
            "now": stream.get({"item": ["tent"]}, epoch=newest.epoch).to_pylist(),
            "changes": stream.changes(after=oldest.epoch).to_pylist(),
        }
    )


defs = dg.Definitions.merge(
    dg.Definitions(assets=[moves, then_and_now]),
    build_streaming_definitions(
        assets=[stock],
        checkpoints=CheckpointCoordinatorResource(url=URL),
        spark=LazyPySparkResource(spark_config={"spark.master": "local[2]"}),
    ),
)
