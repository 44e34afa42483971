"""Constants such as `timestamp 'now'`, of which Spark has another value at each start, are refused as `now()` is."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.runtime.declared.step_parts import Upstream
from dagster_ckpt.runtime.declared.stream import Stream
from dagster_ckpt.runtime.plans.compiler import stream_of, stream_of_sql
from dagster_ckpt.runtime.spark.session import open_session

pytestmark = pytest.mark.slow

SPECIAL = ("now", "today", "tomorrow", "yesterday", "TODAY", "Tomorrow UTC", "12:30", "T12:30:01")
DATES = SPECIAL[1:5]
NOW = [
    *(f"timestamp '{each}'" for each in SPECIAL),
    *(f'date "{each}"' for each in DATES),
    *(f"timestamp_ntz '{each}'" for each in SPECIAL[:5]),
    "timestamp_ltz r'now'",
    *(f"CAST('{each}' AS timestamp)" for each in SPECIAL),
    *(f"{name}('now')" for name in ("timestamp", "to_timestamp", "to_timestamp_ltz", "to_timestamp_ntz")),
    *(f"{name}('today')" for name in ("date", "to_date", "try_to_timestamp", "try_to_date", "last_day", "dayofweek")),
    "try_cast(' now ' AS timestamp)",
    "'now'::timestamp",
    "CAST(concat('n', lower('OW')) AS timestamp)",
    "date_trunc('day', 'yesterday')",
    "date_add('today', -1)",
    "hour('now')",
    "unix_micros(timestamp 'now')",
    "window(timestamp 'now', '1 hour').start",
    "transform(array(1), x -> date_add(date 'today', x))",
    "coalesce(" + "at, " * 30 + "timestamp 'now')",
    "'😀' || timestamp 'now'",
]
ALWAYS_THE_SAME = [
    "timestamp 'epoch'",
    "date 'epoch'",
    "timestamp '2024-01-01 12:30:00'",
    "CAST('2024-01-01' AS date)",
    "try_cast(s AS timestamp)",
    "s = 'now'",
    "to_timestamp(s, 'HH:mm')",
    "CAST('12:30' AS string)",
    "INTERVAL '12:30' HOUR TO MINUTE",
]
PLACES = [
    "SELECT DISTINCT s FROM rows WHERE at < timestamp 'now'",
    "SELECT a.s FROM rows a JOIN rows b ON a.s = b.s AND a.at < timestamp 'now'",
    "SELECT a.s FROM rows a LEFT JOIN rows b ON date_trunc('day', a.at) = to_timestamp('today')",
    "SELECT s FROM rows WHERE EXISTS (SELECT 1 FROM rows b WHERE b.s = rows.s AND b.at < 'today')",
    "SELECT (SELECT max(s) FROM rows WHERE at < timestamp('now')) AS m FROM rows",
    "SELECT s, count(*) FILTER (WHERE at < 'now') AS n FROM rows GROUP BY s",
    "SELECT max(at) AS m FROM rows HAVING m < timestamp 'now'",
    "SELECT to_date('today') AS day, count(*) AS n FROM rows GROUP BY 1",
    "SELECT row_number() OVER (PARTITION BY at < date 'today' ORDER BY s) AS n FROM rows",
    "WITH old AS (SELECT * FROM rows WHERE at < timestamp 'now') SELECT DISTINCT s FROM old",
    "SELECT DISTINCT s FROM old_rows",
]


@pytest.fixture
def session(spark: SparkSession, tmp_path: Path) -> Iterator[SparkSession]:
    made = open_session(spark)
    made.readStream.schema("s string, at timestamp").parquet(str(tmp_path)).createOrReplaceTempView("rows")
    made.sql("CREATE OR REPLACE TEMPORARY VIEW old_rows AS SELECT * FROM rows WHERE at < timestamp 'now'")
    yield made
    made.catalog.dropTempView("old_rows")


def refused(make: Callable[[], Stream]) -> str | None:
    try:
        make()
    except InvalidPipelineError as error:
        return str(error)
    return None


def test_a_query_with_a_constant_that_means_now_is_refused(session: SparkSession) -> None:
    texts = [f"SELECT s, {each} AS x FROM rows" for each in NOW]
    found = {text: refused(lambda text=text: stream_of_sql(session, text)) for text in [*texts, *PLACES]}  # type: ignore[misc]
    assert [text for text, error in found.items() if error is None] == []
    assert {error.partition(":")[0] for error in found.values() if error} == {
        "each row would have to change as time goes by"
    }
    assert str(found[PLACES[0]]).endswith("found=timestamp 'now', line=1")
    assert str(found[PLACES[2]]).endswith("found=CAST('today' AS TIMESTAMP), line=1")


def test_a_constant_that_is_always_the_same_is_not(session: SparkSession) -> None:
    texts = [f"SELECT DISTINCT s, {each} AS x FROM rows" for each in ALWAYS_THE_SAME]
    assert [refused(lambda text=text: stream_of_sql(session, text)) for text in texts] == [None] * len(texts)  # type: ignore[misc]


def test_dataframes_are_refused_too(session: SparkSession) -> None:
    rows = session.table("rows")
    queries: Sequence[DataFrame] = [
        rows.where("at < timestamp 'now'").distinct(),
        rows.where(F.col("at") < F.lit("now").cast("timestamp")).distinct(),
        rows.where(F.col("at") < F.to_timestamp(F.lit("yesterday"))).distinct(),
        rows.groupBy(F.expr("date 'today'")).count(),
        rows.alias("a").join(rows.alias("b"), F.expr("a.s = b.s AND a.at < 'now'")).select("a.s"),
    ]
    found = [refused(lambda frame=frame: stream_of(frame)) for frame in queries]  # type: ignore[misc]
    assert all(error is not None and "as time goes by" in error for error in found), found


@pytest.mark.parametrize(
    "condition", ["at < timestamp 'now'", "at < 'today'", "at < to_timestamp('now')", "at < CAST('12:30' AS timestamp)"]
)
def test_so_is_work_on_the_rows_of_a_table_that_changes(session: SparkSession, condition: str) -> None:
    changes = session.table("rows").withColumn("_change_type", F.lit("insert"))
    table = Stream(changes, upstream=Upstream("rows", ("s",)))
    assert table.where("at < timestamp 'epoch'").updating
    with pytest.raises(InvalidPipelineError, match="not the time of day or chance"):
        table.where(condition)
    with pytest.raises(InvalidPipelineError, match="not the time of day or chance"):
        table.select("s", f"{condition} AS x")
