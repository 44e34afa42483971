"""A running aggregate with thousands of keys, one of them null."""

from pyspark.sql import SparkSession

from assets.flights import scheduled_flights
from dagster_ckpt import Stream, agg, streaming_asset


@streaming_asset(group_name="flights", mode="continuous")
def busiest_aircraft(spark: SparkSession) -> Stream:
    """What every aircraft was planned for and flew. Many a cancelled flight never got one: they share the key null."""
    return (
        Stream(scheduled_flights(spark))
        .key_by("tailnum")
        .aggregate(
            planned=agg.count(),
            flown=agg.count("departed_at"),
            last_departure=agg.max("departed_at"),
        )
    )
