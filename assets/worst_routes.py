"""Two steps in one epoch: the best of a table that changes with every flight."""

from pyspark.sql import SparkSession

from assets.flights import departed_flights
from dagster_ckpt import Stream, agg, streaming_asset


@streaming_asset(group_name="flights_in_time")
def worst_routes(spark: SparkSession) -> Stream:
    """The three routes of each carrier that leave latest on average, of those flown fifty times or more."""
    return (
        Stream(departed_flights(spark))
        .key_by("origin", "destination", "carrier")
        .aggregate(
            flights=agg.count(),
            mean_delay=agg.avg("dep_delay"),
            worst_delay=agg.max("dep_delay"),
        )
        .where("flights >= 50")
        .key_by("carrier")
        .top(3, by=["mean_delay desc", "origin asc", "destination asc"])
    )
