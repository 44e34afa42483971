"""The code location under fire: three kinds of streams that read the same rows, with everything short and small.

The place and what may differ are in the environment, so that the same streams serve the chaos and the soak.
"""

import os
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from dagster_ckpt import (
    CheckpointCoordinatorResource,
    Recovery,
    Stream,
    agg,
    build_streaming_definitions,
    streaming_asset,
    tumbling,
)
from tests.chaos.lanes import (
    DELAY_MS,
    INTERVAL_VARIABLE,
    PLACE_VARIABLE,
    RETAINED,
    SCHEMA,
    WINDOW_MS,
    checkpoints_in,
    inbox_in,
)
from tests.chaos.small_spark import small_spark

PLACE = Path(os.environ[PLACE_VARIABLE])
INTERVAL = os.environ.get(INTERVAL_VARIABLE, "300ms")
RECOVERY = Recovery(lease_timeout="3s", backoff="1s")


def _rows(spark: SparkSession) -> DataFrame:
    return spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 8).parquet(str(inbox_in(PLACE)))


@streaming_asset(mode="continuous", autostart=True, shards=4, recovery=RECOVERY)
def keyed(spark: SparkSession) -> Stream:
    """A running aggregate; the sensor starts it, in its run worker's own process."""
    rows = Stream(_rows(spark)).key_by("key")
    return rows.aggregate(rows=agg.count(), total=agg.sum("value"), greatest=agg.max("value"))


@streaming_asset(mode="continuous", autostart=True, shards=4, recovery=RECOVERY)
def appended(spark: SparkSession) -> Stream:
    """Every input row once."""
    return Stream(_rows(spark))


@streaming_asset(mode="available_now", shards=4, recovery=RECOVERY)
def swept(spark: SparkSession) -> Stream:
    """The aggregate in windows, started from the asset's page whenever it has ended: in a step process of its own."""
    timed = Stream(_rows(spark).selectExpr("*", "timestamp_millis(id) AS at")).with_watermark("at", f"{DELAY_MS}ms")
    windows = timed.key_by("key").window(tumbling(f"{WINDOW_MS}ms"))
    return windows.aggregate(rows=agg.count(), total=agg.sum("value"), greatest=agg.max("value"))


defs = build_streaming_definitions(
    assets=[keyed, appended, swept],
    checkpoints=CheckpointCoordinatorResource(
        url=checkpoints_in(PLACE),
        event_interval="2s",
        retained=RETAINED,
        grace_period="5s",
        checkpoint_interval=INTERVAL,
    ),
    spark=small_spark(),
)
