"""Hourly windows. A row that comes after its window was closed is kept beside the table."""

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
    Stream,
    agg,
    build_streaming_definitions,
    late_rows,
    streaming_asset,
    tumbling,
)

FOLDER = Path(tempfile.gettempdir(), "dagster-ckpt-examples", "windows_with_late_rows")
CLICKS = FOLDER / "clicks"


@dg.asset
def clicks() -> None:
    """Two files. The second brings a click of the first hour, which is over by then."""
    CLICKS.mkdir(parents=True, exist_ok=True)
    for number, minutes in enumerate([[5, 20, 75], [30, 100]]):
        at = pa.array([minute * 60_000_000 for minute in minutes], pa.timestamp("us", "UTC"))
        path = CLICKS / f"{number}.parquet"
        pq.write_table(pa.table({"page": ["home"] * len(minutes), "at": at}), path)
        os.utime(path, (number, number))  # Spark takes the oldest file first


@streaming_asset(deps=[clicks])
def clicks_by_hour(spark: SparkSession) -> Stream:
    """The clicks of each page and hour, once no more of that hour are expected."""
    rows = spark.readStream.schema("page string, at timestamp").option("maxFilesPerTrigger", 1).parquet(str(CLICKS))
    return (
        Stream(rows)
        .with_watermark("at", "10 minutes")
        .key_by("page")
        .window(tumbling("1 hour"), late="keep", on_end="flush")
        .aggregate(clicks=agg.count())
    )


defs = dg.Definitions.merge(
    dg.Definitions(assets=[clicks, late_rows(clicks_by_hour)]),
    build_streaming_definitions(
        assets=[clicks_by_hour],
        checkpoints=CheckpointCoordinatorResource(url=(FOLDER / "checkpoints").as_uri()),
        spark=LazyPySparkResource(spark_config={"spark.master": "local[2]"}),
    ),
)
