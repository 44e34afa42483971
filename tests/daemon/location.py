"""A stream with a freshness policy, and no recovery sensor: once it is dead, it stays dead."""

import os
from datetime import timedelta
from pathlib import Path

import dagster as dg
from dagster_pyspark import LazyPySparkResource
from pyspark.sql import SparkSession

from dagster_ckpt import CheckpointCoordinatorResource, Stream, agg, streaming_asset

PLACE = Path(os.environ["DAGSTER_CKPT_TEST_PLACE"])
WINDOW = timedelta(minutes=1)  # the shortest that Dagster allows


@streaming_asset(
    mode="continuous",
    shards=2,
    checkpoint_interval="500ms",
    freshness_policy=dg.FreshnessPolicy.time_window(fail_window=WINDOW),
)
def clicks(spark: SparkSession) -> Stream:
    """How often each page was opened."""
    rows = spark.readStream.schema("page string").parquet(str(PLACE / "inbox"))
    return Stream(rows).key_by("page").aggregate(opened=agg.count())


defs = dg.Definitions(
    assets=[clicks],
    resources={
        "checkpoints": CheckpointCoordinatorResource(url=(PLACE / "checkpoints").as_uri(), event_interval="1s"),
        "spark": LazyPySparkResource(
            spark_config={
                "spark.master": "local[2]",
                "spark.ui.enabled": "false",
                "spark.driver.bindAddress": "127.0.0.1",
                "spark.driver.host": "127.0.0.1",
            }
        ),
    },
)
