"""The same with every Spark: their functions have other parameters and other defaults."""

import pyarrow as pa
from pyspark.sql.types import ArrayType, StructField, StructType, TimestampNTZType, TimestampType

from dagster_ckpt.runtime.spark.arrow_schemas import to_arrow_schema, to_spark_schema

SPARK = StructType(
    [
        StructField("at", TimestampType()),
        StructField("local", TimestampNTZType()),
        StructField("list", ArrayType(TimestampNTZType())),
    ]
)
UTC, LOCAL = pa.timestamp("us", tz="UTC"), pa.timestamp("us")


def test_a_timestamp_is_in_utc_and_one_without_a_time_zone_stays_so() -> None:
    types = to_arrow_schema(SPARK).types
    assert types[:2] == [UTC, LOCAL]
    assert types[2].value_type == LOCAL


def test_a_schema_that_became_arrows_comes_back() -> None:
    assert to_spark_schema(to_arrow_schema(SPARK)) == SPARK
