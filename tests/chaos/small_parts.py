"""What the code locations under fire have in common: their input, their checkpoints, and a small, quiet Spark."""

import json
import os
from pathlib import Path

from dagster_pyspark import LazyPySparkResource
from pyspark.sql import DataFrame, SparkSession

from dagster_ckpt import CheckpointCoordinatorResource, Recovery
from tests.chaos.lanes import (
    INTERVAL_VARIABLE,
    PLACE_VARIABLE,
    RETAINED,
    SCHEMA,
    SPARK_VARIABLE,
    STORE_VARIABLE,
    checkpoints_in,
    inbox_in,
)

RECOVERY = Recovery(lease_timeout="3s", backoff="1s")


def place() -> Path:
    """Where the cluster that loads this code location keeps everything."""
    return Path(os.environ[PLACE_VARIABLE])


def rows_of_inbox(spark: SparkSession) -> DataFrame:
    return spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 8).parquet(str(inbox_in(place())))


def short_checkpoints(interval: str) -> CheckpointCoordinatorResource:
    """Retention and grace so short that both happen within a round. The environment may ask for another interval."""
    url, options = json.loads(os.environ.get(STORE_VARIABLE, "null")) or (checkpoints_in(place()), {})
    return CheckpointCoordinatorResource(
        url=url,
        storage_options=options,
        event_interval="2s",
        retained=RETAINED,
        grace_period="5s",
        checkpoint_interval=os.environ.get(INTERVAL_VARIABLE, interval),
    )


def small_spark() -> LazyPySparkResource:
    """On loopback alone, unless the environment has other settings."""
    return LazyPySparkResource(
        spark_config={
            "spark.master": "local[2]",
            "spark.driver.memory": "512m",
            # A JVM that is soon killed need not compile itself warm, and three of them share two cores.
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
            "spark.ui.enabled": "false",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            **json.loads(os.environ.get(SPARK_VARIABLE, "{}")),
        }
    )
