"""A running aggregate with a handful of keys."""

from pyspark.sql import SparkSession

from assets.flights import departed_flights
from dagster_ckpt import Stream, agg, streaming_asset


@streaming_asset(group_name="flights", mode="continuous")
def delay_by_carrier(spark: SparkSession) -> Stream:
    """How late every carrier leaves: flights, mean and worst delay in minutes."""
    return (
        Stream(departed_flights(spark))
        .key_by("carrier")
        .aggregate(
            flights=agg.count(),
            mean_delay=agg.avg("dep_delay"),
            worst_delay=agg.max("dep_delay"),
        )
    )
