"""Session windows: rows that follow one another closely belong together."""

from pyspark.sql import SparkSession

from assets.flights import departed_flights
from dagster_ckpt import Stream, agg, session, streaming_asset


@streaming_asset(group_name="flights_in_time")
def aircraft_rotations(spark: SparkSession) -> Stream:
    """How often each aircraft left New York before it stayed away, or on the ground, for twelve hours."""
    return (
        Stream(departed_flights(spark))
        .with_watermark("departed_at", "1 day")
        .key_by("tailnum")
        .window(session("12 hours"), on_end="flush")
        .aggregate(
            flights=agg.count(),
            first_origin=agg.first("origin"),
            last_destination=agg.last("destination"),
            miles=agg.sum("distance"),
        )
    )
