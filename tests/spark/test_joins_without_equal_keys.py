"""Joins that compare each row with all others: `explain` says what they cost, and the newest row before is refused."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.operators.explained.explanation import explain_pipeline
from dagster_ckpt.runtime.declared.step_parts import Upstream
from dagster_ckpt.runtime.declared.stream import Stream
from dagster_ckpt.runtime.driver.stream_checks import plan_stream
from dagster_ckpt.runtime.plans.compiler import stream_of_sql
from dagster_ckpt.runtime.spark.session import open_session

NEWEST = "SELECT p FROM prices WHERE at <= o.at ORDER BY at DESC LIMIT 1"
NEWEST_OF_KEY = "SELECT p FROM prices WHERE sku = o.sku AND at <= o.at ORDER BY at DESC LIMIT 1"
MEET_ALL = [
    "SELECT o.id, p FROM orders o JOIN prices b ON b.at <= o.at",
    "SELECT o.id, p FROM orders o LEFT JOIN prices b ON b.at <= o.at",
    "SELECT o.id, p FROM orders o FULL JOIN prices b ON b.at <= o.at",
    "SELECT o.id, p FROM orders o CROSS JOIN prices",
    "SELECT o.id, x.p FROM orders o, LATERAL (SELECT p FROM prices b WHERE b.at <= o.at) x",
    "SELECT o.id, (SELECT max_by(p, at) FROM prices b WHERE b.sku = o.sku AND b.at <= o.at) AS x FROM orders o",
    "SELECT o.id, x.p FROM orders o, LATERAL (SELECT p FROM bands b WHERE b.at <= o.at ORDER BY b.at DESC LIMIT 1) x",
    "SELECT o.id FROM orders o WHERE EXISTS (SELECT 1 FROM prices b WHERE b.at < o.at)",
]
DO_NOT = [
    "SELECT o.id, p FROM orders o JOIN prices b ON b.sku = o.sku AND b.at <= o.at",
    "SELECT o.id FROM orders o WHERE o.at > (SELECT max(at) FROM prices)",
    "SELECT o.id, n FROM orders o, (SELECT count(*) AS n FROM prices)",
    "SELECT o.id FROM orders o WHERE EXISTS (SELECT 1 FROM prices)",
    "SELECT o.id FROM orders o WHERE o.sku NOT IN (SELECT sku FROM prices)",
    "SELECT DISTINCT o.id, v FROM orders o, (VALUES (1), (2)) AS t(v)",
    "SELECT o.id, x.p FROM orders o, LATERAL (SELECT p FROM prices b WHERE b.sku = o.sku ORDER BY at LIMIT 1) x",
]


@pytest.fixture
def session(spark: SparkSession, tmp_path: Path) -> SparkSession:
    made = open_session(spark)
    for name, columns in (
        ("orders", "id int, sku string, at timestamp"),
        ("prices", "sku string, at timestamp, p int"),
    ):
        made.readStream.schema(columns).parquet(str(tmp_path)).createOrReplaceTempView(name)
    return made


def compiled(session: SparkSession, query: str) -> Stream:
    changes = session.table("prices").withColumn("_change_type", F.lit("insert"))
    return stream_of_sql(session, query, {"bands": Stream(changes, upstream=Upstream("bands", ("sku",)))})


@pytest.mark.parametrize(("queries", "expected"), [(MEET_ALL, True), (DO_NOT, False)])
def test_explain_says_where_each_row_meets_all_others(
    session: SparkSession, queries: list[str], expected: bool
) -> None:
    found = {query: explain_pipeline(plan_stream("q", compiled(session, query)).dataflow.pipeline) for query in queries}
    assert {query: any(step.meets_all for step in each.steps) for query, each in found.items()} == dict.fromkeys(
        queries, expected
    )
    assert all(("the square of the rows" in str(each)) is expected for each in found.values())


@pytest.mark.parametrize(
    "query",
    [
        f"SELECT o.id, x.p\nFROM orders o, LATERAL ({NEWEST_OF_KEY}) x",
        f"SELECT o.id, x.p\nFROM orders o LEFT JOIN LATERAL ({NEWEST_OF_KEY}) x ON true",
        f"SELECT o.id,\n ({NEWEST_OF_KEY}) AS p FROM orders o",
        f"SELECT o.id,\n ({NEWEST}) AS p FROM orders o",
        f"SELECT o.id, x.p\nFROM orders o, LATERAL ({NEWEST}) x",
    ],
)
def test_the_newest_row_before_each_row_is_refused(session: SparkSession, query: str) -> None:
    with pytest.raises(InvalidPipelineError, match=r"all rows of a stream that grows: join by.*at <= .*, line=2"):
        compiled(session, query)
