"""Spark's schemas as Arrow's and back, the same with every Spark: its functions and their defaults differ."""

import inspect
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas import types
from pyspark.sql.types import StructType

# Spark 4.1 has a switch in place of the time zone.
_UTC: dict[str, Any] = (
    {"timezone": "UTC"}
    if "timezone" in inspect.signature(types.to_arrow_schema).parameters
    else {"timestamp_utc": True}
)


def to_arrow_schema(schema: StructType) -> pa.Schema:
    """The columns as Arrow brings them to a task: a `TIMESTAMP` is in UTC, a `TIMESTAMP_NTZ` has no time zone."""
    return types.to_arrow_schema(schema, **_UTC)


def to_spark_schema(schema: pa.Schema) -> StructType:
    """The columns as Spark has them: a timestamp without a time zone is a `TIMESTAMP_NTZ`."""
    return types.from_arrow_schema(schema, prefer_timestamp_ntz=True)
