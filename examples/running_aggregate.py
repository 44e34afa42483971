"""A running aggregate: one row per carrier, updated with each new file."""

import tempfile
from pathlib import Path

import dagster as dg
import pyarrow as pa
import pyarrow.parquet as pq
from dagster_pyspark import LazyPySparkResource
from pyspark.sql import SparkSession

from dagster_ckpt import CheckpointCoordinatorResource, Stream, agg, build_streaming_definitions, streaming_asset

FOLDER = Path(tempfile.gettempdir(), "dagster-ckpt-examples", "running_aggregate")
DEPARTURES = FOLDER / "departures"


@dg.asset
def departures() -> None:
    """The day's departures: one more file each time."""
    DEPARTURES.mkdir(parents=True, exist_ok=True)
    day = pa.table({"carrier": ["AA", "UA", "UA"], "delay": [10.0, 0.0, 30.0]})
    pq.write_table(day, DEPARTURES / f"{len(list(DEPARTURES.iterdir()))}.parquet")


@streaming_asset(deps=[departures])
def delay_by_carrier(spark: SparkSession) -> Stream:
    """How late each carrier leaves. A run works only the files that no run before has worked."""
    rows = spark.readStream.schema("carrier string, delay double").parquet(str(DEPARTURES))
    return Stream(rows).key_by("carrier").aggregate(flights=agg.count(), mean_delay=agg.avg("delay"))


defs = dg.Definitions.merge(
    dg.Definitions(assets=[departures]),
    build_streaming_definitions(
        assets=[delay_by_carrier],
        checkpoints=CheckpointCoordinatorResource(url=(FOLDER / "checkpoints").as_uri()),
        spark=LazyPySparkResource(spark_config={"spark.master": "local[2]"}),
    ),
)
