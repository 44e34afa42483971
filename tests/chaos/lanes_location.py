"""The code location under fire: streams of several kinds that read the same rows, with everything short and small.

The place and what may differ are in the environment, so that the same streams serve the chaos and the soak.
"""

import os

from pyspark.sql import SparkSession

from dagster_ckpt import Stream, agg, build_streaming_definitions, streaming_asset, tumbling
from tests.chaos.lanes import DELAY_MS, GROUPS, LANES_VARIABLE, USUAL, WINDOW_MS
from tests.chaos.small_parts import RECOVERY, rows_of_inbox, short_checkpoints, small_spark


@streaming_asset(mode="continuous", autostart=True, shards=4, recovery=RECOVERY)
def keyed(spark: SparkSession) -> Stream:
    """A running aggregate; the sensor starts it, in its run worker's own process."""
    rows = Stream(rows_of_inbox(spark)).key_by("key")
    return rows.aggregate(rows=agg.count(), total=agg.sum("value"), greatest=agg.max("value"))


@streaming_asset(mode="continuous", autostart=True, shards=4, recovery=RECOVERY)
def appended(spark: SparkSession) -> Stream:
    """Every input row once."""
    return Stream(rows_of_inbox(spark))


@streaming_asset(mode="available_now", shards=4, recovery=RECOVERY)
def swept(spark: SparkSession) -> Stream:
    """The aggregate in windows, started from the asset's page whenever it has ended: in a step process of its own."""
    rows = rows_of_inbox(spark).selectExpr("*", "timestamp_millis(id) AS at")
    timed = Stream(rows).with_watermark("at", f"{DELAY_MS}ms")
    windows = timed.key_by("key").window(tumbling(f"{WINDOW_MS}ms"))
    return windows.aggregate(rows=agg.count(), total=agg.sum("value"), greatest=agg.max("value"))


@streaming_asset(mode="continuous", autostart=True, shards=4, recovery=RECOVERY)
def stepped(spark: SparkSession) -> Stream:
    """Three steps in one epoch: what each key has, beside what its group has, whose rows change with each of them."""
    keys = (
        Stream(rows_of_inbox(spark))
        .key_by("key")
        .aggregate(rows=agg.count(), total=agg.sum("value"), greatest=agg.max("value"))
        .with_column("group", f"key % {GROUPS}")
        .key_by("group")
    )
    return keys.join(keys.aggregate(of_rows=agg.sum("rows"), of_total=agg.sum("total")).key_by("group"))


_ASSETS = {"keyed": keyed, "appended": appended, "swept": swept, "stepped": stepped}

defs = build_streaming_definitions(
    assets=[_ASSETS[lane] for lane in os.environ.get(LANES_VARIABLE, ",".join(USUAL)).split(",")],
    checkpoints=short_checkpoints("300ms"),
    spark=small_spark(),
)
