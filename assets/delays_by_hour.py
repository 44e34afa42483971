"""Windows of event time: one final row for each hour."""

from pyspark.sql import SparkSession

from assets.flights import departed_flights
from dagster_ckpt import Stream, agg, streaming_asset, tumbling


@streaming_asset(group_name="flights_in_time")
def delays_by_hour(spark: SparkSession) -> Stream:
    """How late flights left every airport in each hour; a row comes out when its hour is over for good."""
    return (
        Stream(departed_flights(spark))
        .with_watermark("departed_at", "1 day")
        .key_by("origin")
        .window(tumbling("1 hour"), on_end="flush")
        .aggregate(
            flights=agg.count(),
            mean_delay=agg.avg("dep_delay"),
            worst_delay=agg.max("dep_delay"),
        )
    )
