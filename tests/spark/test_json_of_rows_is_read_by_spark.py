"""The JSON of a delivery into Kafka, read by `from_json`."""

from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from dagster_ckpt.destinations.json_rows import json_rows

SCHEMA = (
    "yes boolean, n long, x double, nan double, most double, price decimal(38,2), text string, data binary, day date, "
    "at timestamp, local timestamp_ntz, tags array<string>, place struct<x: long, y: string>, by map<string, long>"
)


def test_each_type_comes_back_as_it_was(spark: SparkSession) -> None:
    columns = {
        "yes": pa.array([True]),
        "n": pa.array([2**63 - 1]),
        "x": pa.array([0.1]),
        "nan": pa.array([float("nan")]),
        "most": pa.array([float("-inf")]),
        "price": pa.array([Decimal("999999999999999999999999999999999999.99")], pa.decimal128(38, 2)),
        "text": pa.array(['é"\\\n\u2028😀']),
        "data": pa.array([b"\x00\xff\x10"]),
        "day": pa.array([date(1582, 10, 4)]),
        "at": pa.array([datetime(2024, 5, 1, 10, 0, 0, 1, UTC)]),
        "local": pa.array([datetime.fromisoformat("1901-01-01T23:59:59.999999")]),
        "tags": pa.array([["a", None]]),
        "place": pa.array([{"x": None, "y": "here"}], pa.struct([("x", pa.int64()), ("y", pa.string())])),
        "by": pa.array([[("k", 1), ("l", None)]], pa.map_(pa.string(), pa.int64())),
    }
    batch = pa.RecordBatch.from_pydict(columns)
    nulls = pa.RecordBatch.from_arrays([pa.nulls(1, each.type) for each in batch.columns], schema=batch.schema)
    for rows in (batch, nulls):
        texts = spark.createDataFrame([(each,) for each in json_rows(rows).to_pylist()], "value string")
        found = texts.select(F.from_json("value", SCHEMA).alias("row")).select("row.*").toArrow()
        given = pa.Table.from_batches([rows]).cast(found.schema)
        assert found.drop_columns("nan").to_pylist() == given.drop_columns("nan").to_pylist()
        assert repr(found["nan"].to_pylist()) == repr(given["nan"].to_pylist())
