"""The code location of the chain: each stream reads the one before it, in a Dagster run of its own."""

import os
from pathlib import Path

from pyspark.sql import SparkSession

from dagster_ckpt import (
    CheckpointCoordinatorResource,
    Recovery,
    Stream,
    agg,
    build_streaming_definitions,
    streaming_asset,
)
from tests.chaos.chain_lanes import MORE_THAN
from tests.chaos.lanes import INTERVAL_VARIABLE, PLACE_VARIABLE, RETAINED, SCHEMA, checkpoints_in, inbox_in
from tests.chaos.small_spark import small_spark

PLACE = Path(os.environ[PLACE_VARIABLE])
INTERVAL = os.environ.get(INTERVAL_VARIABLE, "500ms")
RECOVERY = Recovery(lease_timeout="3s", backoff="1s")


@streaming_asset(mode="continuous", autostart=True, shards=4, recovery=RECOVERY)
def ids(spark: SparkSession) -> Stream:
    """Every input row once."""
    return Stream(spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 8).parquet(str(inbox_in(PLACE))))


@streaming_asset(mode="continuous", autostart=True, shards=4, recovery=RECOVERY)
def totals(ids: Stream) -> Stream:
    """A running aggregate over a stream that only grows."""
    return ids.key_by("key").aggregate(rows=agg.count(), total=agg.sum("value"), greatest=agg.max("value"))


@streaming_asset(mode="continuous", autostart=True, shards=4, recovery=RECOVERY)
def positive(totals: Stream) -> Stream:
    """Part of a table whose rows change: they come and go."""
    return totals.where(f"total > {MORE_THAN}")


defs = build_streaming_definitions(
    assets=[ids, totals, positive],
    checkpoints=CheckpointCoordinatorResource(
        url=checkpoints_in(PLACE),
        event_interval="2s",
        retained=RETAINED,
        grace_period="5s",
        checkpoint_interval=INTERVAL,
    ),
    spark=small_spark(),
)
