"""Records that no schema fits, and bytes that are no text: the error names the file, or the log the number."""

import logging
import os
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from dagster_ckpt import agg
from dagster_ckpt.errors import CheckpointDeclinedError, InvalidPipelineError
from dagster_ckpt.runtime.declared.stream import Stream
from tests.spark.input_files import drop
from tests.spark.streams import FAST, StreamUnderTest

ONCE = replace(FAST, tolerable_failures=0)


@pytest.mark.parametrize("keyed", [True, False])
def test_bytes_that_are_no_text_stop_the_stream_with_the_file_and_are_replaced_where_the_user_says_so(
    stream: StreamUnderTest, inbox: Path, *, keyed: bool
) -> None:
    drop(inbox, 0, pa.table({"value": [b"Oslo"]}))
    drop(inbox, 1, pa.table({"value": [b"Bern", b"Z\xfcrich"]}))

    def cities(spark: SparkSession, city: str) -> Stream:
        frame = spark.readStream.schema("value binary").option("maxFilesPerTrigger", 1).parquet(str(inbox))
        rows = Stream(frame.selectExpr(f"{city} AS city"))
        return rows.key_by("city").aggregate(n=agg.count()) if keyed else rows

    with pytest.raises(InvalidPipelineError, match=r"column=city, value=b'Z\\xfcrich'.*read=file:/.*00001\.parquet"):
        stream.run(lambda spark: cities(spark, "CAST(value AS STRING)"), ONCE)
    assert [row["city"] for row in stream.rows()] == ["Oslo"]
    stream.run(lambda spark: cities(spark, "make_valid_utf8(CAST(value AS STRING))"), ONCE)
    assert sorted(str(row["city"]) for row in stream.rows()) == ["Bern", "Oslo", "Z\N{REPLACEMENT CHARACTER}rich"]


def test_failfast_names_the_file_and_permissive_warns_once_of_rows_without_a_value(
    stream: StreamUnderTest, inbox: Path, caplog: pytest.LogCaptureFixture
) -> None:
    inbox.mkdir(exist_ok=True)
    for number, text in enumerate(['{"k": "a"}\n', '{"k": "a"}\nbroken\n{"k":\n', "broken\n"]):
        (inbox / f"{number}.json").write_text(text)
        os.utime(inbox / f"{number}.json", (number, number))  # Spark reads the oldest first

    def counted(spark: SparkSession, mode: str) -> Stream:
        reader = spark.readStream.schema("k string").option("maxFilesPerTrigger", 1).option("mode", mode)
        # Rows that Spark aggregates before the shuffle come to no task as they were.
        return Stream(reader.json(str(inbox))).key_by("k").deduplicate()

    with pytest.raises(CheckpointDeclinedError, match=r"read=file:/.*1\.json") as stopped:
        stream.run(lambda spark: counted(spark, "FAILFAST"), ONCE)
    assert "0.json" not in str(stopped.value)
    with caplog.at_level(logging.WARNING):
        stream.run(lambda spark: counted(spark, "PERMISSIVE"), ONCE)
    [said] = [each.getMessage() for each in caplog.records if "nothing but nulls" in each.getMessage()]
    assert "rows=2, epoch=" in said
