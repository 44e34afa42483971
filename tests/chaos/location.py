"""The code location of the tests that kill: streams that count rows, and a gate that holds an epoch in the middle."""

import os
import time
from collections.abc import Iterator

import dagster as dg
import pyarrow as pa
from pyspark.sql import SparkSession

from dagster_ckpt import (
    CheckpointCoordinatorResource,
    Stream,
    agg,
    build_streaming_definitions,
    streaming_asset,
)
from tests.chaos.small_parts import RECOVERY, place, small_spark

PLACE = place()
EVENT_INTERVAL = os.environ.get("DAGSTER_CKPT_TEST_EVENT_INTERVAL", "1s")
STREAMS = ["killed_as_job", "killed_as_asset", "contested"]


def _counting(name: str) -> dg.AssetsDefinition:
    inbox, gate, inside = PLACE / name / "inbox", PLACE / name / "gate", PLACE / name / "inside"

    def pass_the_gate(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # Runs in Spark's Python worker, so an epoch whose rows stand before the closed gate is in the middle.
        for batch in batches:
            while gate.exists():
                inside.touch()
                time.sleep(0.05)
            yield batch

    @streaming_asset(
        name=name,
        mode="continuous",
        shards=2,
        checkpoint_interval="500ms",
        recovery=RECOVERY,
    )
    def counting(spark: SparkSession) -> Stream:
        rows = spark.readStream.schema("key long, value long").option("maxFilesPerTrigger", 1).parquet(str(inbox))
        return (
            Stream(rows.mapInArrow(pass_the_gate, "key long, value long"))
            .key_by("key")
            .aggregate(rows=agg.count(), total=agg.sum("value"), greatest=agg.max("value"))
        )

    return counting


defs = build_streaming_definitions(
    assets=[_counting(name) for name in STREAMS],
    checkpoints=CheckpointCoordinatorResource(url=(PLACE / "checkpoints").as_uri(), event_interval=EVENT_INTERVAL),
    spark=small_spark(),
)
