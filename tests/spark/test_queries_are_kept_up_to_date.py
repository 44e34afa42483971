"""Queries in Spark's SQL as steps of a stream: after every epoch the table is what Spark gives in batch so far."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.runtime.declared.changes_from import changes_from
from dagster_ckpt.runtime.declared.stream import Stream
from dagster_ckpt.runtime.plans.compiler import stream_of, stream_of_sql
from dagster_ckpt.runtime.plans.stand_ins import dataframe_of
from dagster_ckpt.runtime.spark.arrow_schemas import to_spark_schema
from tests.spark.input_files import drop
from tests.spark.rows_as_bags import bag
from tests.spark.streams import StreamUnderTest

pytestmark = pytest.mark.slow

EPOCHS = 3
OPENED = 1
"""The epoch in which a stream is opened has no rows."""

QUERIES = {
    "expressions of aggregates, with filters": """
        SELECT buyer, sum(price) / count(*) AS mean, count(*) FILTER (WHERE item > 2) AS large,
               count(DISTINCT item) AS items, max(weight) - min(weight) AS spread
        FROM orders GROUP BY buyer HAVING count(*) > 1
    """,
    "an aggregate of no rows": """
        SELECT count(*) AS rows, sum(item) AS total, sum(DISTINCT item) AS kinds, median(item) AS middle,
            percentile_cont(0.9) WITHIN GROUP (ORDER BY item DESC) AS p10, bit_xor(item) AS bits,
            min(city) AS first, count(DISTINCT b.score) AS scores
        FROM orders o JOIN buyers b ON o.buyer = b.buyer AND b.score > 90
    """,
    "a subquery of one value, chained aggregates": """
        SELECT n, count(*) AS buyers FROM (SELECT buyer, count(*) AS n, avg(weight) AS w FROM orders GROUP BY buyer)
        WHERE w >= (SELECT avg(weight) FROM orders) GROUP BY n
    """,
    "an outer join that asks more than equal keys": """
        SELECT o.buyer, o.item, b.city, b.score FROM orders o
        LEFT JOIN buyers b ON o.buyer = b.buyer AND o.item > 1 AND b.score <= o.item
    """,
    "a full join, null keys": """
        SELECT coalesce(o.buyer, b.buyer) AS who, o.n, b.m
        FROM (SELECT buyer, count(*) AS n FROM orders GROUP BY buyer) o
        FULL JOIN (SELECT buyer, max(score) AS m FROM buyers GROUP BY buyer) b ON o.buyer = b.buyer
    """,
    "in, exists, not in": """
        SELECT item, price FROM orders o
        WHERE (buyer IN (SELECT buyer FROM buyers WHERE score > 1) OR item = 3)
          AND NOT EXISTS (SELECT 1 FROM buyers b WHERE b.buyer = o.buyer AND b.city = 'Oslo')
          AND item NOT IN (SELECT score FROM buyers WHERE score > 2)
          AND EXISTS (SELECT * FROM buyers WHERE city = 'Rome')
    """,
    "the first rows, a table beside itself": """
        WITH totals AS (SELECT buyer, sum(price) AS spent FROM orders GROUP BY buyer)
        SELECT a.buyer, a.place, b.spent FROM
          (SELECT buyer, row_number() OVER (ORDER BY spent DESC, buyer) AS place FROM totals) a
        JOIN totals b ON a.buyer = b.buyer WHERE a.place <= 2
    """,
    "functions over a partition": """
        SELECT buyer, n, avg(n) OVER () AS mean, rank() OVER (ORDER BY n DESC) AS place,
               lag(n) OVER (ORDER BY n, buyer) AS before, lead(n, 2, -1) OVER (ORDER BY n, buyer) AS behind,
               lag(n, -1) OVER (ORDER BY n, buyer) AS next,
               lag(buyer, 1, 'none') OVER (ORDER BY n, buyer) AS who
        FROM (SELECT buyer, count(*) AS n FROM orders GROUP BY buyer)
    """,
    "sessions of rows that change, and what is near them": """
        WITH newest AS (SELECT buyer, item, max(at) AS at FROM orders GROUP BY buyer, item), sessions AS (
          SELECT session_window(at, CASE WHEN item > 2 THEN '39 minutes' ELSE '1 hour' END) AS w, item > 1 AS high,
            count(*) AS n, count(DISTINCT buyer) AS buyers, max(item) AS item
          FROM newest GROUP BY 1, 2)
        SELECT w.end, high, n, buyers, count(*) OVER (
            PARTITION BY high ORDER BY w.start RANGE BETWEEN INTERVAL '2' HOUR PRECEDING AND CURRENT ROW) AS near,
          sum(n) OVER (ORDER BY n DESC RANGE BETWEEN 1 PRECEDING AND 2 FOLLOWING) AS alike
        FROM sessions
    """,
    "sets, limit, hopping windows": """
        SELECT w, n FROM (
          SELECT window(at, '2 hours', '1 hour') AS w, count(*) AS n FROM orders
          GROUP BY window(at, '2 hours', '1 hour')
          UNION ALL (SELECT NULL, item FROM orders EXCEPT SELECT NULL, score FROM buyers)
        ) ORDER BY n DESC, w LIMIT 7 OFFSET 1
    """,
}

OF_RANDOM_QUERIES = ("a subquery of one value, chained aggregates", "a full join, null keys")
"""Made of what random queries have too, which `make test` tries."""

SCHEMAS = {
    "orders": pa.schema(
        [
            ("buyer", pa.string()),
            ("item", pa.int32()),
            ("price", pa.decimal128(8, 2)),
            ("at", pa.timestamp("us", "UTC")),
            ("weight", pa.float64()),
        ]
    ),
    "buyers": pa.schema([("buyer", pa.string()), ("city", pa.string()), ("score", pa.int32())]),
}
VALUES: Mapping[str, Sequence[object]] = {
    "buyer": ["ann", "bob", "cid", "dee"],
    "item": range(5),
    "price": [Decimal("1.25"), Decimal("7.50"), Decimal("0.10")],
    "at": [datetime(2024, 1, 1, hour, minute, tzinfo=UTC) for hour in range(4) for minute in (0, 20, 59)],
    "weight": [0.5, 1.5, -2.0],
    "city": ["Oslo", "Rome"],
    "score": range(1, 5),
}


def some_rows(table: str, count: int, chance: Random) -> pa.Table:
    columns = SCHEMAS[table].names
    rows = [{name: chance.choice([None, *VALUES[name]]) for name in columns} for _ in range(count)]
    return pa.Table.from_pylist(rows, schema=SCHEMAS[table])


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """A folder of files for each table. One file has no rows."""
    chance = Random(7)
    made = {table: tmp_path_factory.mktemp(table) for table in SCHEMAS}
    for epoch in range(EPOCHS):
        drop(made["orders"], epoch, some_rows("orders", 12, chance))
        drop(made["buyers"], epoch, some_rows("buyers", 0 if epoch == 1 else 6, chance))
    return made


def in_batch(spark: SparkSession, folders: Mapping[str, Path], query: str, files: int) -> Counter[object]:
    for table, folder in folders.items():
        paths = [str(folder / f"{number:05d}.parquet") for number in range(files)]
        spark.read.parquet(*paths).createOrReplaceTempView(table)
    return bag(spark.sql(query).collect())


def streaming(spark: SparkSession, folders: Mapping[str, Path]) -> DataFrame:
    """Give all tables their names, a file of each in each epoch. Returns one of them."""
    for table, folder in folders.items():
        schema = to_spark_schema(SCHEMAS[table])
        rows = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder))
        rows.createOrReplaceTempView(table)
    return spark.table(next(iter(folders)))


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.queries if name in OF_RANDOM_QUERIES else ()) for name in QUERIES],
)
def test_the_table_is_what_the_query_gives_in_batch(
    stream: StreamUnderTest, spark: SparkSession, folders: Mapping[str, Path], name: str
) -> None:
    query = QUERIES[name]
    read = {table: folder for table, folder in folders.items() if table in query}
    stream.run(lambda session: stream_of_sql(streaming(session, read), query))
    assert len(stream.epochs) == EPOCHS
    for files in range(1, EPOCHS + 1):
        table = stream.table(OPENED + files).to_pylist()
        assert bag(row.values() for row in table) == in_batch(spark, read, query, files), f"{files} files"


def test_a_table_whose_rows_come_and_go_is_read_by_its_name(
    stream: StreamUnderTest, spark: SparkSession, folders: Mapping[str, Path], tmp_path: Path
) -> None:
    changes: list[list[tuple[object, ...]]] = [
        [("ann", "Oslo", 1, "c", 1), ("bob", "Rome", 4, "c", 2), ("cid", "Rome", 2, "c", 3)],
        [("ann", "Rome", 3, "u", 4), ("bob", None, None, "d", 5)],
        [("dee", "Oslo", 1, "c", 6), ("cid", "Oslo", 2, "u", 7)],
    ]
    schema = pa.schema([*SCHEMAS["buyers"], ("op", pa.string()), ("version", pa.int64())])
    tables: list[dict[object, tuple[object, ...]]] = [{}]
    for number, of_epoch in enumerate(changes):
        rows = [dict(zip(schema.names, row, strict=True)) for row in of_epoch]
        drop(tmp_path / "changes", number, pa.Table.from_pylist(rows, schema=schema))
        merged = {**tables[-1], **{row[0]: row for row in of_epoch}}
        tables.append({key: row for key, row in merged.items() if row[3] != "d"})
    query = """
        SELECT a.city, o.item, count(*) AS n, max(b.score) AS best FROM buyers a JOIN buyers b ON a.city = b.city
        JOIN orders o ON o.buyer = a.buyer WHERE b.score < 4 OR a.city IN (SELECT city FROM buyers WHERE buyer = 'dee')
        GROUP BY ROLLUP(a.city, o.item)
    """

    def function(session: SparkSession) -> Stream:
        orders = streaming(session, {"orders": folders["orders"]})
        read = session.readStream.schema("buyer string, city string, score int, op string, version long")
        records = read.option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "changes"))
        buyers = changes_from(records, "op-column", key="buyer", sequence="version", exclude="version")
        return stream_of_sql(session, query, {"buyers": buyers, "orders": orders})

    stream.run(function)
    for files in range(1, EPOCHS + 1):
        buyers = [row[:3] for row in tables[files].values()]
        spark.createDataFrame(buyers, "buyer string, city string, score int").createOrReplaceTempView("buyers")
        wanted = in_batch(spark, {"orders": folders["orders"]}, query, files)
        assert wanted
        assert bag(row.values() for row in stream.table(OPENED + files).to_pylist()) == wanted, f"{files} files"


def test_a_dataframe_is_a_query_too(stream: StreamUnderTest, spark: SparkSession, folders: Mapping[str, Path]) -> None:
    shout = F.udf(lambda text: None if text is None else text.upper(), "string")

    def function(session: SparkSession) -> Stream:
        streaming(session, folders)
        items = dataframe_of(Stream(session.table("orders")).key_by("buyer", "item").deduplicate())
        return stream_of(items.groupBy(shout("buyer").alias("who")).agg(F.count("*").alias("items")))

    stream.run(function)
    query = "SELECT upper(buyer), count(DISTINCT coalesce(item, -1)) FROM orders GROUP BY upper(buyer)"
    assert bag(row.values() for row in stream.table().to_pylist()) == in_batch(spark, folders, query, EPOCHS)


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("SELECT *, current_timestamp() AS now FROM orders", "as time goes by.*current_timestamp"),
        ("SELECT * FROM orders LIMIT 3", "LIMIT without ORDER BY"),
        (
            "SELECT c.id, n FROM (SELECT item, count(*) AS n FROM orders GROUP BY item) JOIN range(3) c ON item = c.id",
            "does not stream may be another one when a row goes.*table=id",
        ),
        ("SELECT * FROM orders TABLESAMPLE (10 PERCENT)", "filter by a hash of columns.*found=Sample"),
        ("SELECT stddev(item) OVER (ORDER BY at) AS s FROM orders", "join with an aggregate.*found=stddev"),
        ("SELECT percentile_approx(item, 0.5) AS m FROM orders", "this aggregate cannot be kept.*percentile_approx"),
        ("SELECT count(DISTINCT buyer, item) AS n FROM orders", "SELECT DISTINCT"),
        ("SELECT sum(item) OVER (ORDER BY price RANGE 2 PRECEDING) AS s FROM orders", "RANGE with a distance"),
    ],
)
def test_what_cannot_be_kept_up_to_date_is_refused(
    spark: SparkSession, folders: Mapping[str, Path], query: str, said: str
) -> None:
    with pytest.raises(InvalidPipelineError, match=said):
        stream_of_sql(streaming(spark, folders), query)


@pytest.mark.parametrize(
    ("query", "condition"),
    [
        ("SELECT nothing FROM orders", "UNRESOLVED_COLUMN"),
        ("SELECT buyer, count(*) FROM orders WHERE item IN (SELECT score FROM buyers)", "MISSING_GROUP_BY"),
        ("SELECT * FROM orders WHERE item IN (SELECT nothing FROM buyers)", "UNRESOLVED_COLUMN"),
    ],
)
def test_what_is_no_query_is_spark_s_to_say(
    spark: SparkSession, folders: Mapping[str, Path], query: str, condition: str
) -> None:
    frame = streaming(spark, folders)
    with pytest.raises(AnalysisException, match=condition):
        stream_of_sql(frame, query)


def test_what_equals_another_part_of_the_query_is_one_step(spark: SparkSession, folders: Mapping[str, Path]) -> None:
    totals = "WITH totals AS (SELECT buyer, count(*) AS n FROM orders GROUP BY buyer)"
    query = f"{totals} SELECT a.n, b.n AS m FROM totals a JOIN totals b ON a.buyer = b.buyer"
    made = stream_of_sql(streaming(spark, folders), query)
    assert [step.step.name for step in made.steps if step.step is not None].count("aggregate") == 1
