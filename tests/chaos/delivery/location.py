"""The code location of the deliveries under fire: two streams, and each of them in several destinations."""

import os

import dagster as dg
from pyspark.sql import SparkSession

from dagster_ckpt import Stream, agg, build_streaming_definitions, deliver, streaming_asset
from tests.chaos.delivery.targets import KEY, TARGETS, TARGETS_VARIABLE, destination
from tests.chaos.small_parts import RECOVERY, place, rows_of_inbox, short_checkpoints, small_spark


@streaming_asset(mode="continuous", autostart=True, shards=2, recovery=RECOVERY)
def keyed(spark: SparkSession) -> Stream:
    """A running aggregate, half of whose keys are of the newest rows."""
    rows = Stream(rows_of_inbox(spark).selectExpr("id", f"{KEY} AS key", "value")).key_by("key")
    return rows.aggregate(rows=agg.count(), total=agg.sum("value"), greatest=agg.max("value"))


@streaming_asset(mode="continuous", autostart=True, shards=2, recovery=RECOVERY)
def appended(spark: SparkSession) -> Stream:
    """Every input row once."""
    return Stream(rows_of_inbox(spark))


_STREAMS = {"keyed": keyed, "appended": appended}
_TARGETS = os.environ[TARGETS_VARIABLE].split(",")


def _delivery(name: str) -> dg.AssetsDefinition:
    target = TARGETS[name]
    return deliver(
        _STREAMS[target.stream],
        to=destination(name, place()),
        mode=target.mode,
        interval=target.interval,
        name=name,
        recovery=RECOVERY,
    )


defs = build_streaming_definitions(
    assets=[
        *(_STREAMS[stream] for stream in dict.fromkeys(TARGETS[name].stream for name in _TARGETS)),
        *(_delivery(name) for name in _TARGETS),
    ],
    checkpoints=short_checkpoints("1s"),
    spark=small_spark(),
)
