"""The input of every asset: the flights planned out of New York, one Parquet file a day."""

from pyspark.sql import DataFrame, SparkSession

from resources.places import INPUT

SCHEMA = """
    scheduled_at timestamp,
    departed_at timestamp,
    dep_delay double,
    carrier string,
    flight int,
    tailnum string,
    origin string,
    destination string,
    distance int
"""

DAYS_PER_EPOCH = 30
"""A stream that has fallen behind catches up in steps of a month, not in one great leap."""


def scheduled_flights(spark: SparkSession) -> DataFrame:
    """Every flight that was planned; a cancelled one has no `departed_at`, no `dep_delay` and often no tail number."""
    return spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", DAYS_PER_EPOCH).parquet(INPUT)


def departed_flights(spark: SparkSession) -> DataFrame:
    """The flights that left. Cancelled ones are kept out: nobody knows when they would have."""
    return scheduled_flights(spark).where("departed_at is not null")
