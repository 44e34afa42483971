"""A running aggregate with a key of three columns."""

from pyspark.sql import SparkSession

from assets.flights import departed_flights
from dagster_ckpt import Stream, agg, streaming_asset


@streaming_asset(group_name="flights", mode="continuous")
def delay_by_route(spark: SparkSession) -> Stream:
    """How late every carrier leaves on every route: flights, mean and worst delay in minutes."""
    return (
        Stream(departed_flights(spark))
        .key_by("origin", "destination", "carrier")
        .aggregate(
            flights=agg.count(),
            mean_delay=agg.avg("dep_delay"),
            worst_delay=agg.max("dep_delay"),
        )
    )
