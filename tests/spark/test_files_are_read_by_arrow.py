"""Files that Arrow reads in place of Spark: the table is that of Spark's reading, and what differs is left to Spark."""

import logging
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from dagster_ckpt import agg
from dagster_ckpt.errors import CheckpointError
from dagster_ckpt.protocol.manifest.manifest import ReadBy
from dagster_ckpt.runtime.declared.stream import Stream
from dagster_ckpt.runtime.micro_batch import driver_work, epoch_plans
from tests.spark.input_files import drop
from tests.spark.streams import FAST, StreamUnderTest
from tests.spark.ways import DRIVER, TASKS, WAYS, readers

Work = Callable[[DataFrame], DataFrame]
SCHEMA = "k string, n long, d double, at timestamp"


def rows(first: int, count: int = 50) -> pa.Table:
    numbers = range(first, first + count)
    return pa.table(
        {
            "k": [None if number % 11 == 0 else f"k{number % 7}" for number in numbers],
            "n": pa.array([None if number % 5 == 0 else number for number in numbers], pa.int64()),
            "d": pa.array([float("nan") if number % 13 == 0 else number / 4 for number in numbers]),
            "at": pa.array([1_700_000_000_000_000 + number for number in numbers], pa.timestamp("us", "UTC")),
        }
    )


def totals(inbox: Path, work: Work, schema: str = SCHEMA) -> Callable[[SparkSession], Stream]:
    def function(spark: SparkSession) -> Stream:
        frame = spark.readStream.schema(schema).option("maxFilesPerTrigger", "2").parquet(str(inbox))
        return Stream(work(frame)).key_by("k").aggregate(rows=agg.count(), total=agg.sum("n"), most=agg.max("d"))

    return function


def of_batch(spark: SparkSession, inbox: Path, work: Work) -> list[dict[str, object]]:
    frame = work(spark.read.schema(SCHEMA).parquet(str(inbox))).groupBy("k")
    found = frame.agg(F.expr("count(*) AS rows"), F.expr("sum(n) AS total"), F.expr("max(d) AS most"))
    return sorted(found.toArrow().to_pylist(), key=repr)


WORKS: dict[str, Work] = {
    "all": lambda frame: frame,
    "where": lambda frame: frame.where("n > 10 AND d IS NOT NULL AND at > '2023-01-01'").select("k", "n", "d"),
    "computed": lambda frame: frame.selectExpr("upper(k) AS other", "k", "n + 1 AS n", "d * 2 AS d").drop("other"),
}


@pytest.mark.parametrize("work", WORKS.values(), ids=WORKS)
@pytest.mark.parametrize("way", [pytest.param(way, marks=pytest.mark.ways(way)) for way in WAYS])
def test_the_table_is_that_of_the_batch(
    spark: SparkSession, tmp_path: Path, ways: list[str], work: Work, way: str
) -> None:
    inbox, stream = tmp_path / "inbox", StreamUnderTest(spark, tmp_path)
    for number in range(5):
        drop(inbox, number, rows(number * 50))
    stream.run(totals(inbox, work))
    assert ways == [way] * 3
    assert repr(stream.rows()) == repr(of_batch(spark, inbox, work))
    counted = work(spark.read.schema(SCHEMA).parquet(str(inbox))).count()
    assert sum(epoch.manifest.statistics.rows_in for epoch in stream.epochs) == counted
    assert stream.history().verify().whole


@pytest.mark.ways(DRIVER)
def test_many_rows_of_few_keys_are_worked_in_the_driver_however_few_their_bytes(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(epoch_plans, "work_on", driver_work.work_on)  # it alone decides
    inbox, stream = tmp_path / "inbox", StreamUnderTest(spark, tmp_path)
    for number in range(3):
        many = pa.concat_tables([rows(number * 50)] * (2 * driver_work.ROWS_MAX // 50))
        drop(inbox, 2 * number, many)
        drop(inbox, 2 * number + 1, rows(number))
    assert sum(file.stat().st_size for file in inbox.iterdir()) < driver_work.BYTES_MAX
    stream.run(totals(inbox, WORKS["all"]))
    assert readers(stream) == [ReadBy.TASKS, ReadBy.DRIVER, ReadBy.DRIVER], "the first epoch knows of no keys"
    assert repr(stream.rows()) == repr(of_batch(spark, inbox, WORKS["all"]))


@pytest.mark.parametrize("work", WORKS.values(), ids=WORKS)
@pytest.mark.parametrize("way", [pytest.param(way, marks=pytest.mark.ways(way)) for way in WAYS])
def test_rows_without_a_key_are_read_where_they_are_written(
    spark: SparkSession, tmp_path: Path, ways: list[str], work: Work, way: str
) -> None:
    inbox, stream = tmp_path / "inbox", StreamUnderTest(spark, tmp_path)
    for number in range(5):
        drop(inbox, number, rows(number * 50))
        stream.run(lambda session: Stream(work(session.readStream.schema(SCHEMA).parquet(str(inbox)))))
    assert ways == [way] * 5
    assert set(readers(stream)) == {ReadBy(way)}
    found = work(spark.read.schema(SCHEMA).parquet(str(inbox))).toArrow().to_pylist()
    assert sorted(map(repr, stream.rows())) == sorted(map(repr, found))
    assert stream.history().verify().whole


@pytest.mark.parametrize(
    ("way", "reader"),
    [
        pytest.param(TASKS, ReadBy.TASKS, marks=pytest.mark.ways(TASKS)),
        pytest.param(DRIVER, ReadBy.DRIVER, marks=pytest.mark.ways(DRIVER)),
    ],
)
def test_a_file_that_only_spark_reads_turns_up(
    spark: SparkSession,
    tmp_path: Path,
    ways: list[str],
    caplog: pytest.LogCaptureFixture,
    way: str,
    reader: ReadBy,
) -> None:
    inbox, stream = tmp_path / "inbox", StreamUnderTest(spark, tmp_path)
    for number in range(6):
        own = rows(number * 50)
        if number == 3:  # text as bytes, which Spark takes for text
            own = own.set_column(0, "k", pc.cast(own["k"], pa.binary()))
        drop(inbox, number, own)
    with caplog.at_level(logging.WARNING):
        stream.run(totals(inbox, WORKS["all"]))
    assert readers(stream) == [reader, ReadBy.SPARK, ReadBy.SPARK]
    assert ways[0] == way
    [said] = [
        record.getMessage() for record in caplog.records if "Spark reads the rows of this run" in record.getMessage()
    ]
    assert "the column k as BYTE_ARRAY" in said
    assert repr(stream.rows()) == repr(of_batch(spark, inbox, WORKS["all"]))
    assert stream.history().verify().whole


@pytest.mark.parametrize("way", [pytest.param(way, marks=pytest.mark.ways(way)) for way in WAYS])
def test_what_spark_refuses_is_refused_in_its_words(spark: SparkSession, tmp_path: Path, way: str) -> None:
    inbox, stream = tmp_path / "inbox", StreamUnderTest(spark, tmp_path)
    drop(inbox, 0, rows(0))
    drop(inbox, 1, rows(50))
    most = rows(100).set_column(1, "n", pa.array([2**63 - 1] * 50, pa.int64()))
    drop(inbox, 2, most)
    with pytest.raises(CheckpointError, match=r"ARITHMETIC_OVERFLOW|overflow"):
        stream.run(totals(inbox, lambda frame: frame.withColumn("n", F.expr("n + 1"))), FAST)
    assert readers(stream) == [ReadBy(way)]
    assert stream.history().verify().whole


def test_a_run_goes_on_where_another_way_has_ended(spark: SparkSession, tmp_path: Path) -> None:
    inbox, stream = tmp_path / "inbox", StreamUnderTest(spark, tmp_path)
    for number in range(8):
        drop(inbox, number, rows(number * 50))
        stream.run(totals(inbox, WORKS["where"]))
        assert repr(stream.rows()) == repr(of_batch(spark, inbox, WORKS["where"]))
    assert set(readers(stream)) == set(ReadBy), "each way had its turn"
