"""A test of a streaming asset over batches of its own: no files, no store, no Dagster instance. Run it with pytest."""

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from dagster_ckpt import Stream, agg, source, streaming_asset
from dagster_ckpt.testing import run_batches


def read_departures(spark: SparkSession) -> DataFrame:
    return spark.readStream.schema("carrier string, delay double").parquet("/data/departures")


departures = source("departures", read_departures)
"""A source with a name: in production it is read, in a test batches take its place."""


@streaming_asset
def delay_by_carrier(spark: SparkSession) -> Stream:
    """How late each carrier leaves; flights that left early count as in time."""
    rows = departures(spark).selectExpr("carrier", "greatest(delay, 0) AS delay")
    return Stream(rows).key_by("carrier").aggregate(flights=agg.count(), mean_delay=agg.avg("delay"))


def test_flights_that_leave_early_count_as_in_time() -> None:
    first = pa.table({"carrier": ["AA", "UA"], "delay": [-5.0, 4.0]})
    second = pa.table({"carrier": ["AA"], "delay": [10.0]})
    table = run_batches(delay_by_carrier, {"departures": [first, second]})
    assert sorted(table.to_pylist(), key=lambda row: row["carrier"]) == [
        {"carrier": "AA", "flights": 2, "mean_delay": 5.0},
        {"carrier": "UA", "flights": 1, "mean_delay": 4.0},
    ]
