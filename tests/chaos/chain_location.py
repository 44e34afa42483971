"""The code location of the chain: each stream reads the one before it, in a Dagster run of its own."""

from pyspark.sql import SparkSession

from dagster_ckpt import Stream, agg, build_streaming_definitions, streaming_asset
from tests.chaos.chain_lanes import MORE_THAN
from tests.chaos.small_parts import RECOVERY, rows_of_inbox, short_checkpoints, small_spark


@streaming_asset(mode="continuous", autostart=True, shards=4, recovery=RECOVERY)
def ids(spark: SparkSession) -> Stream:
    """Every input row once."""
    return Stream(rows_of_inbox(spark))


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
    checkpoints=short_checkpoints("500ms"),
    spark=small_spark(),
)
