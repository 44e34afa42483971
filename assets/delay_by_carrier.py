"""A running aggregate with a handful of keys."""

from pyspark.sql import SparkSession

from assets.flights import departed_flights
from dagster_ckpt import Stream, agg, streaming_asset


@streaming_asset(group_name="flights", mode="continuous")
def delay_by_carrier(spark: SparkSession) -> Stream:
    """How late every carrier leaves: flights, mean and worst delay in minutes."""
    return (
        Stream(departed_flights(spark))
        .with_watermark("departed_at", "1 day")  # no row is late here: it shows up to which departure the table goes
        .key_by("carrier")
        .aggregate(
            flights=agg.count(),
            mean_delay=agg.avg("dep_delay"),
            worst_delay=agg.max("dep_delay"),
        )
    )
