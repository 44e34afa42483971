"""Spark's numbers of columns, variables and calls, and its seeds, are in no fingerprint: a restart has others."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from dagster_ckpt.operators import agg
from dagster_ckpt.runtime.declared.stream import Stream
from dagster_ckpt.runtime.plans.compiler import stream_of, stream_of_sql
from dagster_ckpt.runtime.spark.session import open_session
from tests.spark.fingerprints import fingerprint, plan_twice
from tests.spark.input_files import drop
from tests.spark.rows_as_bags import bag
from tests.spark.streams import StreamUnderTest

ROWS = pa.table(
    {
        "k": [1, 2],
        "a": [[1, 2], [3]],
        "m": pa.array([[(1, 2)], [(3, 4)]], pa.map_(pa.int64(), pa.int64())),
        "s": ["x", "k#7"],
        "at": pa.array([0, 1], pa.timestamp("us", "UTC")),
    }
)
MORE = pa.table(
    {
        "k": [3, 2],
        "a": [[4, 5], [6]],
        "m": pa.array([[(5, 2)], [(3, 4)]], pa.map_(pa.int64(), pa.int64())),
        "s": ["y", None],
        "at": pa.array([1_000_000, 2_000_000], pa.timestamp("us", "UTC")),
    }
)
SCHEMA = "k long, a array<long>, m map<long, long>, s string, at timestamp"
MANY = ", ".join(f"k + {number}" for number in range(30))
IN_SQL = {
    "a lambda": "SELECT k, transform(a, x -> x + 1) AS b FROM t",
    "lambdas of two variables": """
        SELECT k, map_filter(m, (x, y) -> x > y) AS b, aggregate(a, 0L, (x, y) -> x - y, x -> x * 2) AS c,
               array_sort(a, (x, y) -> CASE WHEN x < y THEN 1 WHEN x > y THEN -1 ELSE 0 END) AS d FROM t
    """,
    "a function in Python": "SELECT k, twice(k) AS b FROM t WHERE twice(k) > 2 OR plus(k) = 1",
    "a generator": "SELECT k, e FROM t LATERAL VIEW explode(filter(a, x -> x > 0)) v AS e",
    "a generator in Python": "SELECT k, y FROM t, LATERAL both(k)",
    "values of a static table": "SELECT (SELECT max(d) FROM d WHERE d > 1) AS m, (SELECT min(d) FROM d) AS n FROM t",
    "a group that is a value of another table": "SELECT k, count(*) AS n FROM t GROUP BY k, (SELECT max(k) FROM t)",
    "a group that is a row of another table": "SELECT k, count(*) AS n FROM t GROUP BY k, (SELECT s FROM t)",
    "a group that is a value of a static table": "SELECT k, count(*) AS n FROM t GROUP BY k, (SELECT max(d) FROM d)",
    "an order that is a value of another table": """
        SELECT k, row_number() OVER (PARTITION BY s ORDER BY k + (SELECT max(k) FROM t)) AS n FROM t
    """,
    "rows in a static table": """
        SELECT k FROM t WHERE k IN (SELECT d + 1 FROM d) OR EXISTS (SELECT 1 FROM d WHERE d = k)
    """,
    "a static table with a subquery": """
        SELECT k, n FROM t JOIN (SELECT d, count(*) AS n FROM d WHERE d IN (SELECT 2 * d FROM d) OR d > 7 GROUP BY d)
            ON k = d
    """,
    "seeds": """
        SELECT uuid() AS a, rand() AS b, randn() AS c, shuffle(a) AS d, shuffle(shuffle(a)) AS e, randstr(3) AS f,
               uniform(0, 5) AS g FROM t
    """,
    "a seed that two parts read": "WITH q AS (SELECT k, rand() AS r FROM t) SELECT a.r FROM q a JOIN q b USING (k)",
    "a condition of a join": "SELECT count(*) AS n FROM t x JOIN t y ON exists(x.a, e -> e = y.k)",
    "a join with a static table": "SELECT k, d FROM t JOIN d ON exists(a, x -> x = d)",
    "a session": """
        SELECT session_window(CASE WHEN k > 1 THEN at ELSE NULL END, '5 minutes') AS w, count(*) AS n
        FROM t GROUP BY session_window(CASE WHEN k > 1 THEN at ELSE NULL END, '5 minutes')
    """,
    "aggregates": """
        SELECT transform(a, x -> x + 1) AS K, sum(twice(k)) FILTER (WHERE exists(a, x -> x > k)) AS b,
               max(get(filter(a, y -> y > 1), 0)) AS c, max(get(filter(a, y -> y > 2), 0)) AS d,
               collect_list(twice(k)) AS e
        FROM t GROUP BY transform(a, x -> x + 1)
    """,
    "a partition": """
        SELECT k, row_number() OVER (PARTITION BY filter(a, x -> x > 2) ORDER BY twice(k), aggregate(a, 0L, (x, y) -> x)
            ) AS n FROM t
    """,
    "names and texts with numbers": """
        SELECT k AS `k#7`, 'k#7' AS b, concat(s, 'lambda x#8L') AS c FROM t WHERE s > 'k#9'
    """,
    "many arguments": f"SELECT greatest({MANY}) AS b FROM t",
}


def where_of_columns(t: DataFrame) -> Stream:
    newest = Stream(t.select("k", "a", "at")).key_by("k").deduplicate("last", by="at")
    is_large = F.udf(lambda k: k > 1, "boolean")
    kept = newest.where(F.exists("a", lambda x: x > F.col("k"))).where(is_large("k")).where("k < 7 OR k > 9")
    return (
        kept.with_column("sum", F.aggregate("a", F.lit(0).cast("long"), lambda x, y: x - y))
        .key_by("k")
        .aggregate(n=agg.count())
    )


IN_PYTHON: Mapping[str, Callable[[DataFrame], Stream]] = {
    "columns of a DataFrame": lambda t: stream_of(
        t.select(
            F.transform("a", lambda x: x + 1).alias("b"), F.rand().alias("r"), F.udf(lambda x: x, "long")("k")
        ).distinct()
    ),
    "aggregates of a DataFrame": lambda t: stream_of(
        t.groupBy(F.filter("a", lambda x: x > 2)).agg(
            F.max(F.aggregate("a", F.lit(0).cast("long"), lambda x, y: x - y)), F.count("*")
        )
    ),
    "conditions on what changes": where_of_columns,
}


RESTARTED = (
    "a lambda",
    "a function in Python",
    "a generator",
    "values of a static table",
    "seeds",
    "a condition of a join",
    "a session",
    "aggregates",
)
ALL = " UNION ALL ".join(
    f"SELECT '{name}' AS name, to_json(struct(*)) AS row FROM ({IN_SQL[name]})" for name in RESTARTED
)
"""These queries as one stream."""
CHECKOUT = Path(__file__).parents[2]
ANOTHER_PROCESS = """
import json, sys
from pathlib import Path
from tests.spark.local_spark import local_spark
from tests.spark.test_a_query_is_the_same_in_every_process import fingerprints, restart

root = Path(sys.argv[1])
with local_spark({"spark.sql.warehouse.dir": str(root / "warehouse")}) as spark:
    spark.range(1).selectExpr(*(f"id AS c{place}" for place in range(700))).count()
    restart(spark, root)
    (root / "fingerprints.json").write_text(json.dumps(fingerprints(spark, root, again=True)))
"""


@pytest.fixture
def t(spark: SparkSession, tmp_path: Path) -> DataFrame:
    drop(tmp_path / "t", 0, ROWS)
    return tables(spark, tmp_path / "t")


def tables(spark: SparkSession, folder: Path) -> DataFrame:
    """The table that streams, which SQL names `t`, beside what else queries read and call."""
    add_others(spark)
    t = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", "1").parquet(str(folder))
    t.createOrReplaceTempView("t")
    return t


def add_others(spark: SparkSession) -> None:
    """A static table, and functions in Python."""

    class Both:
        def eval(self, x: int) -> Iterator[tuple[int]]:
            yield (x,)
            yield (-x,)

    spark.udf.register("twice", lambda x: 2 * x, "long")
    spark.udf.register("plus", F.udf(lambda x: x + 1, "long", useArrow=True))
    spark.udtf.register("both", F.udtf(Both, returnType="y: bigint"))  # type: ignore[arg-type]
    spark.range(3).withColumnRenamed("id", "d").createOrReplaceTempView("d")


def plan(t: DataFrame, name: str) -> Stream:
    return IN_PYTHON[name](t) if name in IN_PYTHON else stream_of_sql(t.sparkSession, IN_SQL[name])


def fingerprints(spark: SparkSession, root: Path, *, again: bool = False) -> dict[str, str]:
    """Those of all queries. `again`: they are planned in the opposite order."""
    t, names = tables(open_session(spark), root / "t"), [*IN_SQL, *IN_PYTHON]
    return {name: fingerprint(plan(t, name)) for name in (reversed(names) if again else names)}


def restart(spark: SparkSession, root: Path) -> dict[str, StreamUnderTest]:
    """Run one stream of queries in SQL, and one in Python, to the end of their input."""
    streams = {name: StreamUnderTest(spark, root, name, shards=2) for name in ("all", "conditions")}
    streams["all"].run(lambda session: stream_of_sql(tables(session, root / "t"), ALL))
    streams["conditions"].run(lambda session: where_of_columns(tables(session, root / "t")))
    return streams


@pytest.mark.parametrize("name", [*IN_SQL, *IN_PYTHON])
def test_planned_twice_the_fingerprint_is_the_same(t: DataFrame, name: str) -> None:
    plan_twice(t.sparkSession, lambda: plan(t, name))


@pytest.mark.long
@pytest.mark.slow
def test_streams_go_on_in_another_process(spark_of_all: SparkSession, tmp_path: Path) -> None:
    drop(tmp_path / "t", 0, ROWS)
    streams = restart(spark_of_all, tmp_path)
    drop(tmp_path / "t", 1, MORE)
    command, environ = (
        [sys.executable, "-c", ANOTHER_PROCESS, str(tmp_path)],
        {**os.environ, "PYTHONPATH": str(CHECKOUT)},
    )
    subprocess.run(command, env=environ, check=True, timeout=250)
    batch = open_session(spark_of_all)
    add_others(batch)
    batch.read.schema(SCHEMA).parquet(str(tmp_path / "t")).createOrReplaceTempView("t")
    expected = bag(batch.sql(ALL).where("name <> 'seeds'").collect())
    rows = streams["all"].rows()
    assert bag(row.values() for row in rows if row["name"] != "seeds") == expected
    assert {row["name"] for row in rows} == set(RESTARTED)
    assert streams["conditions"].rows() == [{"k": 2, "n": 1}, {"k": 3, "n": 1}]
    assert json.loads((tmp_path / "fingerprints.json").read_text()) == fingerprints(spark_of_all, tmp_path)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("SELECT transform(a, x -> x + 1) AS b FROM t", "SELECT transform(a, x -> x + 2) AS b FROM t"),
        ("SELECT zip_with(a, a, (x, y) -> x - y) AS b FROM t", "SELECT zip_with(a, a, (y, x) -> x - y) AS b FROM t"),
        ("SELECT twice(k) AS b FROM t", "SELECT plus(k) AS b FROM t"),
        ("SELECT (SELECT max(d) FROM d) AS m FROM t", "SELECT (SELECT max(d) FROM d WHERE d < 2) AS m FROM t"),
        ("SELECT s = 'k#7' AS b FROM t", "SELECT s = 'k#8' AS b FROM t"),
        (f"SELECT greatest({MANY}) AS b FROM t", f"SELECT greatest({MANY} - 1) AS b FROM t"),
    ],
)
def test_another_query_has_another_fingerprint(t: DataFrame, before: str, after: str) -> None:
    assert fingerprint(stream_of_sql(t.sparkSession, before)) != fingerprint(stream_of_sql(t.sparkSession, after))


def test_names_of_variables_and_columns_are_in_no_fingerprint(t: DataFrame) -> None:
    one, other = (f"SELECT transform(a, {name} -> {name} + 1) AS b, k FROM t" for name in ("x", "y"))
    assert fingerprint(stream_of_sql(t.sparkSession, one)) == fingerprint(stream_of_sql(t.sparkSession, other))
