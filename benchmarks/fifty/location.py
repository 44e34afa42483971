"""A code location of many streams. How many, and where their store is, the environment says; none of them is run."""

import os

import dagster as dg
from dagster_pyspark import LazyPySparkResource
from pyspark.sql import SparkSession

from benchmarks.fifty.names import STREAMS_VARIABLE, URL_VARIABLE, name_of
from dagster_ckpt import CheckpointCoordinatorResource, Stream, agg, build_streaming_definitions, streaming_asset


def _stream(number: int) -> dg.AssetsDefinition:
    @streaming_asset(name=name_of(number))
    def stream(spark: SparkSession) -> Stream:
        """Count, sum and greatest value of each key."""
        rows = spark.readStream.schema("key long, value double").parquet(f"/data/inbox_{number:02}")
        return Stream(rows).key_by("key").aggregate(n=agg.count(), total=agg.sum("value"), greatest=agg.max("value"))

    return stream


defs = build_streaming_definitions(
    assets=[_stream(number) for number in range(int(os.environ[STREAMS_VARIABLE]))],
    checkpoints=CheckpointCoordinatorResource(url=os.environ[URL_VARIABLE]),
    spark=LazyPySparkResource(spark_config={"spark.master": "local[2]"}),
)
