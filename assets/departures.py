"""An append-only stream: every input row comes out once."""

from pyspark.sql import SparkSession

from assets.flights import departed_flights
from dagster_ckpt import Stream, streaming_asset


@streaming_asset(group_name="flights", mode="continuous")
def departures(spark: SparkSession) -> Stream:
    """Every departure once, cleaned, with the moment it left as its event time."""
    return Stream(departed_flights(spark)).with_watermark("departed_at", "1 day")
