"""The weather at New York's three airports, a record an hour, one Parquet file a day."""

from pyspark.sql import DataFrame, SparkSession

from assets.flights import DAYS_PER_EPOCH
from resources.places import WEATHER

SCHEMA = """
    origin string,
    temp double,
    dewp double,
    humid double,
    wind_dir long,
    wind_speed double,
    wind_gust double,
    precip double,
    pressure double,
    visib double,
    measured_at timestamp
"""


def hourly_weather(spark: SparkSession) -> DataFrame:
    """Every record, with the moment it was taken."""
    return spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", DAYS_PER_EPOCH).parquet(WEATHER)
