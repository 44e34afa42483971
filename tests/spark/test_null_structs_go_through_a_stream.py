"""Spark declares a field of `struct(1 AS x)` not null, even where the struct itself is null."""

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from dagster_ckpt.runtime.declared.stream import Stream
from tests.spark.input_files import drop
from tests.spark.streams import StreamUnderTest

STRUCTS = [
    "if(v = 1, struct(1 AS x), NULL) AS s",
    "array(if(v = 1, struct(1 AS x), NULL)) AS s",
    "map('m', if(v = 1, struct(1 AS x), NULL)) AS s",
    "if(v = 1, struct(struct(array(struct(1 AS x)) AS a) AS b), NULL) AS s",
]


def frame_of(spark: SparkSession, inbox: Path, *columns: str) -> Stream:
    frame = spark.readStream.schema("k string, v long, at timestamp").parquet(str(inbox))
    return Stream(frame.selectExpr(*columns))


@pytest.mark.parametrize("step", ["append", "deduplicate", "full join"])
def test_a_null_struct_of_fields_that_are_never_null(stream: StreamUnderTest, inbox: Path, step: str) -> None:
    times = pa.array([1_000_000, 2_000_000, 90_000_000], pa.timestamp("us", "UTC"))
    drop(inbox, 0, pa.table({"k": ["a", "b", "z"], "v": [1, 2, 1], "at": times}))

    def function(spark: SparkSession) -> Stream:
        columns = [each.replace("AS s", f"AS s{number}") for number, each in enumerate(STRUCTS)]
        rows = frame_of(spark, inbox, "k", "at", *columns).with_watermark("at", "0s")
        if step == "append":
            return rows
        if step == "deduplicate":
            return rows.key_by("k").deduplicate()
        other = frame_of(spark, inbox, "upper(k) AS k", "at AS bt", "struct(1 AS x) AS t")
        return rows.key_by("k").interval_join(
            other.with_watermark("bt", "0s").key_by("k"), "0s", "0s", "full", on_end="flush"
        )

    stream.run(function)
    found = {row["k"]: [row[f"s{number}"] for number in range(len(STRUCTS))] for row in stream.rows()}
    there = [{"x": 1}, [{"x": 1}], [("m", {"x": 1})], {"b": {"a": [{"x": 1}]}}]
    expected = {"a": there, "b": [None, [None], [("m", None)], None], "z": there}
    if step == "full join":
        expected |= {key: [None] * len(STRUCTS) for key in "ABZ"}
    assert found == expected
