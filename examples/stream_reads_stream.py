"""A stream that reads another stream: the carriers whose mean delay is above a limit now."""

import tempfile
from pathlib import Path

import dagster as dg
import pyarrow as pa
import pyarrow.parquet as pq
from dagster_pyspark import LazyPySparkResource
from pyspark.sql import SparkSession

from dagster_ckpt import CheckpointCoordinatorResource, Stream, agg, build_streaming_definitions, streaming_asset

FOLDER = Path(tempfile.gettempdir(), "dagster-ckpt-examples", "stream_reads_stream")
DEPARTURES = FOLDER / "departures"


@dg.asset
def departures() -> None:
    """The first time AA is late; each later file has AA in time, and UA late."""
    DEPARTURES.mkdir(parents=True, exist_ok=True)
    number = len(list(DEPARTURES.iterdir()))
    delays = [40.0, 0.0] if number == 0 else [-20.0, 60.0]
    pq.write_table(pa.table({"carrier": ["AA", "UA"], "delay": delays}), DEPARTURES / f"{number}.parquet")


@streaming_asset(deps=[departures])
def delay_by_carrier(spark: SparkSession) -> Stream:
    """How late each carrier leaves."""
    rows = spark.readStream.schema("carrier string, delay double").parquet(str(DEPARTURES))
    return Stream(rows).key_by("carrier").aggregate(mean_delay=agg.avg("delay"))


@streaming_asset
def late_carriers(delay_by_carrier: Stream) -> Stream:
    """Follows the other table epoch by epoch. A carrier that is no longer late leaves this one."""
    return delay_by_carrier.where("mean_delay > 15")


defs = dg.Definitions.merge(
    dg.Definitions(assets=[departures]),
    build_streaming_definitions(
        assets=[delay_by_carrier, late_carriers],
        checkpoints=CheckpointCoordinatorResource(url=(FOLDER / "checkpoints").as_uri()),
        spark=LazyPySparkResource(spark_config={"spark.master": "local[2]"}),
    ),
)
