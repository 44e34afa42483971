"""A join of two streams by time: what was known when the other happened."""

from datetime import timedelta

from pyspark.sql import SparkSession

from assets.flights import departed_flights
from assets.weather import hourly_weather
from dagster_ckpt import Stream, streaming_asset

WITHIN_THE_HOUR_BEFORE = timedelta(hours=-1, microseconds=1)
"""A record comes every hour, on the hour: this side of exactly an hour there is one, the latest."""


@streaming_asset(group_name="flights_in_time")
def departures_with_weather(spark: SparkSession) -> Stream:
    """Each departure with the latest weather of its airport within the hour before; without one where none is known."""
    departures = departed_flights(spark).select("departed_at", "carrier", "flight", "origin", "destination")
    weather = hourly_weather(spark).select("origin", "measured_at", "temp", "wind_speed", "precip", "visib")
    left = Stream(departures).with_watermark("departed_at", "1 day").key_by("origin")
    right = Stream(weather).with_watermark("measured_at", "1 day").key_by("origin")
    return left.interval_join(right, WITHIN_THE_HOUR_BEFORE, "0s", how="left", on_end="flush")
