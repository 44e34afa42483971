"""`withWatermark` in a query: it lets nothing go yet, which is said, and no delay is in a fingerprint."""

import logging
from collections.abc import Callable, Mapping
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from dagster_ckpt import explain, source
from dagster_ckpt.protocol.manifest.manifest import Pipeline
from dagster_ckpt.runtime.declared.stream import Stream
from dagster_ckpt.runtime.driver.stream_checks import plan_stream
from dagster_ckpt.runtime.plans.compiler import stream_of, stream_of_sql
from dagster_ckpt.runtime.spark.session import open_session
from dagster_ckpt.testing import run_batches

Make = Callable[[DataFrame, DataFrame], DataFrame]
HOUR = "window(at, '1 hour')"
QUERIES: Mapping[str, Make] = {
    "a window": lambda rows, _: rows.groupBy("k", F.expr(HOUR)).agg(F.count("*"), F.max("at"), F.sum("v")),
    "a group by the time itself": lambda rows, _: rows.groupBy("at").agg(F.min("v")),
    "a session": lambda rows, _: rows.groupBy("k", F.session_window("at", "1 minute")).agg(F.sum("v")),
    "a join in time": lambda rows, other: rows.join(
        other, F.expr("k = ok AND oat BETWEEN at AND at + INTERVAL 1 HOUR"), "left"
    ),
    "duplicates": lambda rows, _: rows.dropDuplicates(["k", "at"]),
    "duplicates within the delay": lambda rows, _: rows.dropDuplicatesWithinWatermark(["k"]),
    "the first rows": lambda rows, _: rows.orderBy("at").limit(2),
    "the time within others": lambda rows, _: rows.select("k", F.struct("at", F.array(F.struct("at")))).distinct(),
    "expressions of the time": lambda rows, _: rows.groupBy(F.expr("hour(at) + v")).agg(F.max(F.expr("minute(at)"))),
}


def compiled(spark: SparkSession, folder: Path, make: Make, delay: str | None) -> Pipeline:
    """The fingerprint of a query over two sources with this watermark, or none."""
    session = open_session(spark)
    rows = session.readStream.schema("k string, at timestamp, v int").parquet(str(folder))
    other = session.readStream.schema("ok string, oat timestamp").parquet(str(folder))
    if delay is not None:
        rows, other = rows.withWatermark("at", delay), other.withWatermark("oat", delay)
    return plan_stream("queries", stream_of(make(rows, other))).dataflow.pipeline


@pytest.mark.parametrize("name", QUERIES)
def test_no_delay_of_a_watermark_is_in_a_fingerprint(spark: SparkSession, tmp_path: Path, name: str) -> None:
    found = [compiled(spark, tmp_path, QUERIES[name], delay) for delay in ("10 minutes", "2 days")]
    if name != "duplicates within the delay":  # which Spark has over a watermark alone
        found.append(compiled(spark, tmp_path, QUERIES[name], None))
    assert found[1:] == found[:1] * (len(found) - 1)
    for each in (found[0], *found[1:]):
        schemas = [step.output for step in each.steps] + [spec.schema for step in each.steps for spec in step.inputs]
        assert not [str(schema) for schema in schemas if "watermark" in schema.to_string(show_field_metadata=True)]


EVENTS = pa.schema([("k", pa.string()), ("at", pa.timestamp("us", "UTC"))])
events = source("events", lambda spark: spark.readStream.format("rate").load())


def hourly(spark: SparkSession) -> DataFrame:
    return events(spark).withWatermark("at", "10 minutes").groupBy("k", F.expr(HOUR)).count()


def in_sql(spark: SparkSession) -> str:
    events(spark).createOrReplaceTempView("events")
    return "SELECT k, count(*) AS n FROM events WATERMARK at DELAY OF INTERVAL 10 MINUTES GROUP BY k"


def gone_on(spark: SparkSession) -> Stream:
    return Stream(hourly(spark)).where("count > 1").key_by("k").top(1, by="count desc")


@pytest.mark.parametrize("function", [hourly, in_sql, gone_on])
def test_an_ignored_watermark_is_explained_and_logged(
    spark_of_all: SparkSession, function: Callable[..., object], caplog: pytest.LogCaptureFixture
) -> None:
    text = str(explain(function, schemas={"events": EVENTS}, spark=spark_of_all))
    assert text.endswith("\n\nwithWatermark(at, 10 minutes) in the query lets no state go"), text
    with caplog.at_level(logging.WARNING, "dagster_ckpt"):
        run_batches(function, {"events": [EVENTS.empty_table()]}, spark=spark_of_all)
    [said] = [each.getMessage() for each in caplog.records if "lets no state go" in each.getMessage()]
    assert f"stream={function.__name__}, watermark=at, 10 minutes" in said


def test_a_query_without_a_watermark_says_nothing_of_one(spark: SparkSession, tmp_path: Path) -> None:
    session = open_session(spark)
    session.readStream.schema("k string").parquet(str(tmp_path)).createOrReplaceTempView("rows")
    assert stream_of_sql(session, "SELECT DISTINCT k FROM rows").all_ignored_watermarks == ()
