"""Queries in Spark's SQL as steps of a stream: after every epoch the table is what Spark gives in batch so far."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from dagster_ckpt.errors import CheckpointDeclinedError, InvalidPipelineError
from dagster_ckpt.runtime.declared.changes_from import changes_from
from dagster_ckpt.runtime.declared.step_operator import declared_operator
from dagster_ckpt.runtime.declared.stream import Stream
from dagster_ckpt.runtime.plans.compiler import stream_of, stream_of_sql
from dagster_ckpt.runtime.plans.stand_ins import dataframe_of
from dagster_ckpt.runtime.spark.arrow_schemas import to_spark_schema
from tests.spark.fingerprints import plan_twice
from tests.spark.input_files import drop
from tests.spark.rows_as_bags import bag
from tests.spark.streams import FAST, StreamUnderTest

pytestmark = pytest.mark.slow

ONCE = replace(FAST, tolerable_failures=0)
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
    "groups beside a subquery of one value": """
        SELECT buyer, sum(price) / (SELECT sum(price) FROM orders) AS share, (SELECT max(score) FROM buyers) AS most
        FROM orders GROUP BY buyer
        UNION ALL SELECT string(item), (SELECT count(*) FROM buyers) + 0.5, 1 FROM (SELECT DISTINCT item FROM orders)
        UNION ALL SELECT "", count(*) * (SELECT count(*) FROM buyers), 2 FROM orders
    """,
    "any aggregate of whole partitions, beside functions of frames": """
        SELECT buyer, item, stddev(item) OVER (PARTITION BY buyer) AS spread, median(item) OVER () AS middle,
               array_sort(collect_list(item) OVER (PARTITION BY buyer)) AS items,
               sum(item) OVER (PARTITION BY buyer) AS total,
               count_if(item > 1) OVER (PARTITION BY buyer) AS large,
               row_number() OVER (PARTITION BY buyer ORDER BY item) AS n
        FROM (SELECT DISTINCT buyer, item FROM orders)
    """,
    "the first rows for each row outside, in an order that is not theirs": """
        SELECT b.buyer, b.score, o.item,
          (SELECT item FROM orders t WHERE t.buyer = b.buyer ORDER BY price, item LIMIT 1) AS least
        FROM (SELECT DISTINCT buyer, score FROM buyers) b LEFT JOIN LATERAL (
          SELECT item FROM orders o WHERE o.buyer = b.buyer ORDER BY price DESC, item DESC LIMIT 2
        ) o ON true
    """,
    "defaults of the row": """
        SELECT buyer, item, lag(n, 1, n) OVER w AS before, lead(n, 2, n + item) OVER w AS behind,
               lead(spent, 1, CAST(1.5 AS DECIMAL(10, 2))) OVER w AS next, lag(n, 1, 7) OVER w AS plain
        FROM (SELECT buyer, item, nullif(count(*), 1) AS n, CAST(sum(price) AS DECIMAL(10, 2)) AS spent
              FROM orders GROUP BY buyer, item)
        WINDOW w AS (PARTITION BY buyer ORDER BY item)
    """,
    "structs of rows that only come": """
        SELECT buyer, max(struct(price, item)) AS most, min(struct(price, item)) AS least,
               array_sort(collect_list(struct(item, price))) AS all, max_by(struct(price), item) AS by_item
        FROM orders GROUP BY buyer
    """,
    "structs in aggregates": """
        SELECT buyer, max(struct(large, item)) AS most, min(struct(large, item)) AS least,
               max(struct(item, at)).at AS last, size(collect_list(struct(item, large))) AS n,
               array_sort(collect_list(struct(item, large)) FILTER (WHERE item > 1)) AS some,
               max_by(struct(item, large), item) AS by_item, min_by(if(item > 2, struct(item), NULL), item) AS first,
               max(if(item > 3, struct(item), NULL)) AS none
        FROM (SELECT buyer, item, at, nullif(count(*) % 3, 0) AS large FROM orders GROUP BY buyer, item, at)
        GROUP BY buyer
    """,
    "values that are no null so far": """
        SELECT buyer, item, last_value(large) IGNORE NULLS OVER w AS last,
               first_value(large) IGNORE NULLS OVER w AS first,
               last(city, true) OVER (ORDER BY item DESC, buyer NULLS LAST ROWS UNBOUNDED PRECEDING) AS name,
               count(*) OVER w AS n, any_value(item) IGNORE NULLS OVER w AS any
        FROM (SELECT buyer, item, max(price) FILTER (WHERE price > 10) AS large, max(left(buyer, 1)) AS city
              FROM orders GROUP BY buyer, item)
        WINDOW w AS (PARTITION BY buyer ORDER BY item)
    """,
    "filters that let no row of a step pass": """
        SELECT buyer, n FROM (SELECT buyer, count(*) AS n FROM orders GROUP BY buyer HAVING 1 > 2)
        UNION ALL SELECT 'all', count(*) AS n FROM orders HAVING NULL
        UNION ALL SELECT 'none', count(*) FROM (SELECT DISTINCT buyer FROM orders) WHERE false
    """,
    "the first and last row that a filter lets pass, which may have a null": """
        SELECT buyer, item, last_value(large) FILTER (WHERE item % 2 = 1) OVER w AS last,
               first_value(large) FILTER (WHERE item > 1) OVER w AS first,
               last_value(large) FILTER (WHERE item < 3) IGNORE NULLS OVER w AS known,
               any_value(item) FILTER (WHERE item < 3) OVER (PARTITION BY buyer ORDER BY item DESC
                   ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS any
        FROM (SELECT buyer, item, nullif(count(*) % 3, 0) AS large FROM orders GROUP BY buyer, item)
        WINDOW w AS (PARTITION BY buyer ORDER BY item)
    """,
    "a filter over a window's value that is no number": """
        SELECT * FROM (SELECT buyer, item, max(buyer) OVER (PARTITION BY item) AS last FROM orders) WHERE last = 'dee'
    """,
    "values that are no null, before and behind": """
        SELECT buyer, item, lag(large) IGNORE NULLS OVER w AS before, lead(large, 2) IGNORE NULLS OVER w AS behind,
               lag(large, 3, item) IGNORE NULLS OVER w AS third, lead(large, -2, 9) IGNORE NULLS OVER w AS second,
               nth_value(large, 2) IGNORE NULLS OVER w AS two, row_number() OVER w AS place,
               nth_value(large, 2) IGNORE NULLS OVER (
                   PARTITION BY buyer ORDER BY item ROWS BETWEEN UNBOUNDED PRECEDING AND 1 FOLLOWING) AS near,
               first_value(large) IGNORE NULLS OVER (
                   PARTITION BY buyer ORDER BY item ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING) AS next,
               last_value(large) IGNORE NULLS OVER (
                   PARTITION BY buyer ORDER BY item ROWS BETWEEN 1 PRECEDING AND UNBOUNDED FOLLOWING) AS last,
               first_value(large) IGNORE NULLS OVER (PARTITION BY buyer ORDER BY item DESC NULLS FIRST
                   ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS highest
        FROM (SELECT buyer, item, nullif(count(*) % 3, 0) AS large FROM orders GROUP BY buyer, item)
        WINDOW w AS (PARTITION BY buyer ORDER BY item)
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
          AND NOT EXISTS (SELECT 1 FROM buyers b WHERE b.buyer = o.buyer AND b.city = 'Oslo' LIMIT 2)
          AND item NOT IN (SELECT score FROM buyers WHERE score > 2)
          AND EXISTS (SELECT * FROM buyers WHERE city = 'Rome')
    """,
    "functions over a partition in the order of the query, with nothing above them": """
        SELECT *, median(item) OVER w AS middle, max(item) OVER w AS most, bit_or(item) OVER w AS bits,
               min(price) OVER w AS least
        FROM orders WINDOW w AS (PARTITION BY buyer)
    """,
    "exists over unions and groups, with limits; aggregates of which nothing is left": """
        SELECT item, none FROM orders o, (SELECT count(DISTINCT item) FILTER (WHERE false) AS none FROM orders)
        WHERE EXISTS (SELECT city FROM buyers WHERE score > 2 UNION SELECT city FROM buyers WHERE city = 'Rome')
          AND EXISTS (SELECT max(score) FROM buyers GROUP BY city LIMIT 1 OFFSET 1)
          AND EXISTS (SELECT city FROM buyers WHERE o.item > 1 GROUP BY city LIMIT 2)
          AND EXISTS (SELECT max(score) FROM buyers WHERE o.price IS NOT NULL)
          AND NOT EXISTS (SELECT city FROM buyers OFFSET 9)
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
    "subqueries of one value anywhere": """
        WITH best AS (SELECT buyer, max(city) AS city FROM buyers GROUP BY buyer), spent AS (
          SELECT item > (SELECT avg(score) FROM buyers) AS high,
            (SELECT b.city FROM best b WHERE b.buyer = o.buyer) AS c,
            sum(item - (SELECT min(score) FROM buyers)) AS n, (SELECT count(*) FROM buyers) AS buyers
          FROM orders o GROUP BY ALL)
        SELECT high, c, n, buyers, sum(n * (SELECT max(item) FROM orders)) OVER (PARTITION BY high) AS m, b.city
        FROM spent s LEFT JOIN best b ON b.city = s.c AND s.n > (SELECT avg(score) FROM buyers)
    """,
    "pivot, and rows in the text": """
        SELECT * FROM (SELECT buyer, item, weight FROM orders UNION ALL VALUES ('ann', 7, 0.5D), ('eve', NULL, NULL))
        PIVOT (sum(item) AS n, max(item) AS most FOR weight IN (0.5 AS half, -2 AS less, 9 AS none))
    """,
    "a join that never matches": """
        SELECT o.item, b.city, c.score FROM orders o FULL JOIN buyers b ON false
        LEFT JOIN (SELECT * FROM buyers WHERE 1 = 0) c ON c.city = b.city
        UNION ALL (SELECT 1, 'none', item FROM orders ORDER BY item LIMIT 0)
    """,
    "structs and intervals as keys": """
        WITH nested AS (
          SELECT struct(item, price) AS s, struct(1 AS one, buyer) AS t, at - TIMESTAMP '2024-01-01' AS i
          FROM orders WHERE item < 3)
        SELECT x.*, z.s IS NULL AS single FROM (SELECT s, t, i, count(*) AS n FROM nested GROUP BY ALL) x
        LEFT JOIN (SELECT s FROM nested INTERSECT
          SELECT struct(score AS item, CAST(NULL AS DECIMAL(8, 2)) AS price) FROM buyers) z ON x.s = z.s
    """,
    "arrays as keys, and lists of lists": """
        WITH listed AS (
          SELECT array(item, item % 2, NULL) AS a, array(struct(buyer, price)) AS b, array(weight * 0, weight) AS c,
            item
          FROM orders WHERE item < 3)
        SELECT x.*, z.a IS NULL AS single FROM (
          SELECT a, c, count(*) AS n, array_sort(collect_list(b)) AS lists, array_sort(collect_set(b)) AS set,
            any_value(a)[0] AS first, count(DISTINCT b) AS kinds, max_by(a, item) AS last,
            size(collect_list(struct(a, item))) AS pairs, count(*) OVER (PARTITION BY a) AS alike
          FROM listed GROUP BY a, c) x
        LEFT JOIN (SELECT array(item, item % 2, NULL) AS a FROM orders
          INTERSECT SELECT array(score, score % 2, NULL) FROM buyers) z ON x.a = z.a
    """,
    "lateral and limited subqueries, days before a date": """
        SELECT b.buyer, x.s, x.n FROM buyers b JOIN LATERAL (
          SELECT sum(o.item) OVER (ORDER BY o.item) AS s,
            count(*) OVER (ORDER BY date(o.at) RANGE BETWEEN INTERVAL '1' DAY PRECEDING AND CURRENT ROW) AS n
          FROM orders o WHERE o.buyer = b.buyer) x
        WHERE EXISTS (SELECT 1 FROM orders o WHERE o.buyer = b.buyer LIMIT 2)
          AND EXISTS (SELECT 1 FROM orders o WHERE upper(o.buyer) = upper(b.buyer) LIMIT 1)
    """,
    "rows of which no column is read": """
        SELECT n, m, (SELECT count(*) FROM orders o WHERE EXISTS (SELECT 1 FROM buyers b WHERE b.score > 2)) AS k FROM
          (SELECT count(*) AS n FROM (SELECT buyer FROM orders GROUP BY buyer UNION ALL SELECT buyer FROM buyers))
          FULL JOIN (SELECT count(*) AS m FROM (SELECT 1 FROM orders) FULL JOIN (SELECT 1 FROM buyers) ON true) ON true
    """,
    "a join of rows of which no column is read": """
        SELECT count(*) AS m FROM (SELECT 1 FROM orders) FULL JOIN (SELECT 1 FROM buyers) ON true
    """,
    "a lateral subquery, days before a date": """
        SELECT b.buyer, x.n FROM buyers b JOIN LATERAL (
          SELECT count(*) OVER (ORDER BY date(o.at) RANGE BETWEEN INTERVAL '1' DAY PRECEDING AND CURRENT ROW) AS n
          FROM orders o WHERE o.buyer = b.buyer) x
    """,
    "exists that asks more, of rows that change": """
        WITH items AS (SELECT buyer, item, count(*) AS n FROM orders GROUP BY buyer, item)
        SELECT item, n FROM items a WHERE EXISTS (SELECT * FROM items b WHERE a.buyer = b.buyer AND a.item <> b.item)
          AND NOT EXISTS (SELECT * FROM buyers b WHERE a.buyer = b.buyer AND b.score < n)
    """,
    "a rollup that two steps read": """
        SELECT t.buyer, t.n, b.city FROM (
          SELECT buyer, sum(n) AS n FROM (SELECT buyer, count(*) AS n FROM orders GROUP BY buyer) GROUP BY ROLLUP(buyer)
          UNION SELECT 'eve', 2) t
        FULL JOIN buyers b ON t.n > 1 AND t.n < b.score
    """,
    "what aggregates make of all values of rows that change": """
        SELECT city, count(DISTINCT item, weight) AS pairs,
            count(DISTINCT item, weight) FILTER (WHERE item > 1) AS high, approx_count_distinct(item) AS kinds,
            sum(DISTINCT item) AS s, avg(DISTINCT item) AS a, count(*) AS n,
            sort_array(collect_list(item)) AS items, sort_array(collect_set(weight)) AS weights,
            sort_array(array_agg(DISTINCT at)) AS times, mode() WITHIN GROUP (ORDER BY item) AS most,
            percentile(item, array(0.3, 0.5)) AS p, percentile_approx(weight, array(0.0, 0.6, 1.0)) AS q,
            percentile_disc(0.4) WITHIN GROUP (ORDER BY price) AS d, round(skewness(item), 9) AS lean,
            round(kurtosis(weight), 9) AS tails, round(regr_sxy(item, weight), 9) AS xy,
            max_by(item, o.buyer || at || weight || price) AS newest, bool_and(item > 0) AS positive,
            any_value(city) AS c, try_sum(item) AS t, count_if(item > 2) AS twos, bit_and(item) AS bits,
            round(stddev(item), 9) AS spread
        FROM orders o LEFT JOIN buyers b ON o.buyer = b.buyer AND b.score > 2 GROUP BY city
    """,
    "texts in the order of other columns": """
        SELECT item, listagg(buyer, '-') WITHIN GROUP (ORDER BY at, weight, buyer) AS names,
            listagg(buyer) WITHIN GROUP (ORDER BY weight DESC, at DESC, buyer DESC) FILTER (WHERE weight > 0) AS late
        FROM orders GROUP BY item
    """,
    "zeros with and without a sign are one": """
        SELECT zero, item, n, CAST(zero AS STRING) AS text FROM (
          SELECT weight * 0 AS zero, item, count(*) AS n FROM orders GROUP BY 1, 2) WHERE n > 1
    """,
    "what aggregates make of no rows": """
        SELECT collect_list(item) AS items, collect_set(b.score) AS scores, skewness(item) AS lean, mode(item) AS most,
            max_by(item, weight) AS newest, listagg(city) AS cities, count(DISTINCT item, city) AS pairs,
            bool_or(item > 1) AS high, percentile_approx(item, 0.5) AS half, percentile(item, array(0.5)) AS halves
        FROM orders o JOIN buyers b ON o.buyer = b.buyer AND b.score > 90
    """,
    "grouping sets, pivot, unpivot, explode": """
        SELECT city, item, grouping_id(city, item) AS sets, sum(x) AS n FROM orders o JOIN buyers b ON o.buyer = b.buyer
        LATERAL VIEW explode(sequence(1, score)) AS x GROUP BY GROUPING SETS ((city, item), (item), ())
        UNION ALL
        SELECT name, v, w, 0 FROM (
            SELECT * FROM (SELECT o.buyer, item, score FROM orders o LEFT JOIN buyers USING (buyer))
            PIVOT (sum(score) AS v, count(*) AS w FOR item IN (1 AS a, 2 AS b, NULL AS c)))
            UNPIVOT ((v, w) FOR name IN ((a_v, a_w) AS a, (b_v, b_w) AS b, (c_v, c_w) AS c))
    """,
    "constants": """
        WITH names AS (SELECT * FROM VALUES (1, 'one'), (2, NULL), (9, 'nine'), (NULL, 'none') AS v(id, name)),
        items AS (SELECT item, count(*) AS n FROM orders GROUP BY item)
        SELECT name, n, id IN (SELECT score FROM buyers) AS known FROM names LEFT JOIN items ON id = item
        UNION ALL SELECT name, n, true FROM items JOIN names ON n = id
        UNION ALL SELECT 'range', id, n > 2 FROM range(4) FULL JOIN items ON id = item
        UNION ALL (SELECT 'both', item, true FROM items EXCEPT SELECT 'both', id, true FROM names)
        UNION ALL SELECT 'stays', 7, NULL
        UNION ALL SELECT listagg(buyer, '-') WITHIN GROUP (ORDER BY buyer DESC), item, true FROM orders GROUP BY item
        UNION ALL SELECT listagg(DISTINCT buyer) WITHIN GROUP (ORDER BY buyer), item, false FROM orders GROUP BY item
    """,
    "joins that ask more, of rows that change": """
        WITH items AS (SELECT buyer, item, count(*) AS n, weight FROM orders GROUP BY buyer, item, weight)
        SELECT CAST(weight * 0 AS STRING) AS zero, n,
            EXISTS (SELECT * FROM buyers b WHERE b.buyer = a.buyer AND score > a.item) AS some
        FROM items a WHERE EXISTS (SELECT * FROM items b WHERE a.buyer = b.buyer AND a.item <> b.item)
          AND NOT EXISTS (SELECT * FROM buyers b WHERE a.buyer = b.buyer AND b.score < n)
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
LONG = (
    "subqueries of one value anywhere",
    "constants",
    "a join that never matches",
    "lateral and limited subqueries, days before a date",
    "rows of which no column is read",
    "a rollup that two steps read",
    "joins that ask more, of rows that change",
    "groups beside a subquery of one value",
    "any aggregate of whole partitions, beside functions of frames",
    "the first rows for each row outside, in an order that is not theirs",
    "structs in aggregates",
    "values that are no null so far",
    "values that are no null, before and behind",
    "in, exists, not in",
    "exists over unions and groups, with limits; aggregates of which nothing is left",
    "structs and intervals as keys",
    "arrays as keys, and lists of lists",
    "a join of rows of which no column is read",
    "exists that asks more, of rows that change",
    "what aggregates make of all values of rows that change",
    "grouping sets, pivot, unpivot, explode",
)
"""Of so many steps that each takes as long as several others. The kinds of these steps are in others too."""

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
        spark.read.schema(to_spark_schema(SCHEMAS[table])).parquet(*paths).createOrReplaceTempView(table)
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
    [pytest.param(name, marks=pytest.mark.queries if name in (*OF_RANDOM_QUERIES, *LONG) else ()) for name in QUERIES],
)
def test_the_table_is_what_the_query_gives_in_batch(
    stream: StreamUnderTest, spark: SparkSession, folders: Mapping[str, Path], name: str
) -> None:
    query = QUERIES[name]
    read = {table: folder for table, folder in folders.items() if table in query}
    stream.run(lambda own: plan_twice(own, lambda: stream_of_sql(streaming(own, read), query)))
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
            "SELECT c.id, n FROM (SELECT item, count(*) AS n FROM orders GROUP BY 1) JOIN range(99999) c ON item = id",
            "does not stream may be another one when a row goes.*table=id",
        ),
        ("SELECT * FROM orders TABLESAMPLE (10 PERCENT)", "filter by a hash of columns.*found=Sample"),
        ("SELECT stddev(item) OVER (ORDER BY at) AS s FROM orders", "any aggregate without ORDER BY.*found=stddev"),
        ("SELECT histogram_numeric(item, 3) AS h FROM orders", r"each bucket: GROUP BY.*histogram_numeric"),
        ("SELECT percentile(item, 0.5, item) AS p FROM orders", "frequencies are not supported: .*found=percentile"),
        ("SELECT collect_list(array(at)) AS m FROM orders", "no such nested values: .*found=collect_list"),
        ("SELECT count(DISTINCT array(at)) AS n FROM orders", r"values that have an order.*column=array\(at\)"),
        ("SELECT array(at) AS a, count(*) AS n FROM orders GROUP BY 1", "not brought together by values of this type"),
        ("SELECT sum(DISTINCT weight), kurtosis(DISTINCT item) AS k FROM orders", "DISTINCT is for.*kurtosis"),
        ("SELECT listagg(buyer) WITHIN GROUP (ORDER BY at, item DESC) AS n FROM orders", "that all ascend with NULLS"),
        ("SELECT id FROM range(100000) UNION ALL SELECT item FROM orders", "added again in every epoch.*columns=id"),
        ("SELECT sum(item) OVER (ORDER BY price RANGE 2 PRECEDING) AS s FROM orders", "RANGE with a distance"),
        (
            "SELECT buyer,\n  last(item, true) OVER (ORDER BY at ROWS 2 PRECEDING) AS s\nFROM orders",
            "IGNORE NULLS.*, line=2$",
        ),
        (
            "SELECT o.* FROM orders o JOIN LATERAL\n(SELECT * FROM buyers b WHERE b.buyer = o.buyer LIMIT 1)",
            "which by ORDER BY",
        ),
        (
            "SELECT * FROM orders o WHERE item IN (SELECT score FROM buyers b WHERE b.buyer = o.buyer LIMIT 1)",
            "which by ORDER BY",
        ),
        ("SELECT buyer, item AS _change_type FROM orders", "adds this column itself.*column=_change_type, line=1"),
        ("SELECT buyer, item AS Buyer FROM orders", "not case-sensitive.*columns=buyer, Buyer"),
        ("SELECT rank() OVER (ORDER BY array(item)) AS r FROM orders", "no order by values of this type.*array<int>"),
        (
            "SELECT item, (SELECT score FROM buyers b WHERE b.score < o.item) AS s FROM orders o",
            "may give several rows",
        ),
        (
            "WITH RECURSIVE r AS (SELECT item i FROM orders UNION ALL SELECT i + 1 FROM r, orders WHERE i = 2) FROM r",
            "a join for each level",
        ),
        (
            "SELECT first(item) FILTER (WHERE item > 1) OVER (ORDER BY at ROWS 2 PRECEDING) AS s FROM orders",
            "as FILTER of first and last",
        ),
        ("FROM orders |> SELECT item |> DROP item", "selects no column"),
        ("SELECT 1 AS x", "reads no stream"),
        ("DROP VIEW orders", "no query.*found=DropView"),
        ("INSERT INTO orders SELECT * FROM orders", "no query.*found=InsertInto"),
    ],
)
def test_what_cannot_be_kept_up_to_date_is_refused(
    spark: SparkSession, folders: Mapping[str, Path], query: str, said: str
) -> None:
    with pytest.raises(InvalidPipelineError, match=said):
        stream_of_sql(streaming(spark, folders), query)


def test_a_function_in_sql_that_reads_a_stream_is_refused(spark: SparkSession, folders: Mapping[str, Path]) -> None:
    to_be_a_stream = spark.createDataFrame([], to_spark_schema(SCHEMAS["orders"]))
    to_be_a_stream.createOrReplaceTempView("orders")
    body = "SELECT sum(item) FROM orders WHERE buyer = who"
    spark.sql(f"CREATE OR REPLACE TEMPORARY FUNCTION spent(who STRING) RETURN {body}")
    session = streaming(spark, folders)
    with pytest.raises(InvalidPipelineError, match="a function in SQL whose body reads a stream: write the body"):
        stream_of_sql(session, "SELECT buyer,\n spent(buyer) AS n FROM buyers")


def test_several_rows_for_one_value_end_the_stream(
    stream: StreamUnderTest, spark: SparkSession, folders: Mapping[str, Path]
) -> None:
    query = "SELECT item, (SELECT score FROM buyers) AS s FROM orders"
    with pytest.raises(CheckpointDeclinedError, match="stands for one value gave several rows"):
        stream.run(lambda session: stream_of_sql(streaming(session, folders), query), ONCE)
    assert stream.table().num_rows == 0


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("SELECT item,\n nothing FROM orders", r"Did you mean one of the following\? .*, line=2$"),
        ("SELECT buyer, count(*) FROM orders WHERE item IN (SELECT score FROM buyers)", "MISSING_GROUP_BY.*, line=1$"),
        ("SELECT * FROM orders WHERE item IN (SELECT nothing FROM buyers)", "UNRESOLVED_COLUMN.*, line=1$"),
        ("SELECT *\n\nFROM ordrs", r"query\. Did you mean 'orders'\? reason=\[TABLE_OR_VIEW_NOT_FOUND\].*, line=3$"),
        ("SELECT *\nFORM orders", r"reason=\[PARSE_SYNTAX_ERROR\].*, line=2$"),
        ("SELECT mediam(item) AS m FROM orders", r"UNRESOLVED_ROUTINE.*, line=1$"),
    ],
)
def test_what_spark_cannot_read_is_said_in_one_line_with_its_place(
    spark: SparkSession, folders: Mapping[str, Path], query: str, said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    frame = streaming(spark, folders)
    with pytest.raises(InvalidPipelineError, match=said) as refused:
        stream_of_sql(frame, query)
    assert "\n" not in str(refused.value)
    assert refused.value.__suppress_context__, "Spark's error would be shown with its whole plan"
    assert "SQLQueryContextLogger" not in "".join(capfd.readouterr())


def test_what_equals_another_part_of_the_query_is_one_step(spark: SparkSession, folders: Mapping[str, Path]) -> None:
    totals = "WITH totals AS (SELECT buyer, count(*) AS n FROM orders GROUP BY buyer)"
    query = f"{totals} SELECT a.n, b.n AS m FROM totals a JOIN totals b ON a.buyer = b.buyer"
    made = stream_of_sql(streaming(spark, folders), query)
    assert [step.step.name for step in made.steps if step.step is not None].count("aggregate") == 1


def test_a_key_is_kept_once(spark: SparkSession, folders: Mapping[str, Path]) -> None:
    frame = streaming(spark, folders)
    inner = stream_of_sql(frame, "SELECT o.item, o.buyer, b.city FROM orders o JOIN buyers b ON o.buyer = b.buyer")
    assert [kept(step) for step in inner.steps] == [
        {"left_rows": ["buyer", "l.item"], "right_rows": ["buyer", "r.city"]}
    ]
    outer = stream_of_sql(frame, "SELECT o.item, b.buyer FROM orders o LEFT JOIN buyers b ON o.buyer = b.buyer")
    assert kept(outer.steps[0]) == {
        "left_rows": ["l.buyer", "l.item"],
        "right_rows": ["r.buyer"],
        "counts": ["l.buyer"],
    }
    # The text of a number is not the number.
    of_floats = stream_of_sql(frame, "SELECT a.weight FROM orders a JOIN orders b ON a.weight = b.weight")
    [text, number] = kept(of_floats.steps[0])["left_rows"]
    assert "cast" in text.lower()
    assert number == "l.weight"
    top = "SELECT * FROM (SELECT buyer, item, row_number() OVER (PARTITION BY buyer ORDER BY item) AS n FROM orders)"
    assert kept(stream_of_sql(frame, f"{top} WHERE n < 3").steps[0]) == {"ranked": ["buyer", "item"]}


def test_equal_arguments_of_aggregates_are_read_once(spark: SparkSession, folders: Mapping[str, Path]) -> None:
    query = "SELECT buyer, sum(item), avg(item), count(item), max(buyer) FROM orders GROUP BY buyer"
    [step] = stream_of_sql(streaming(spark, folders), query).steps
    assert declared_operator(step).pipeline.inputs[0].schema.names == ["buyer", "item"]


def test_a_row_is_kept_with_the_number_of_its_matches(spark: SparkSession, folders: Mapping[str, Path]) -> None:
    query = (
        "SELECT item FROM orders a WHERE NOT EXISTS (SELECT * FROM buyers b WHERE a.buyer = b.buyer AND item > score)"
    )
    steps = [step for step in stream_of_sql(streaming(spark, folders), query).steps if step.step is not None]
    assert [step.step.name for step in steps if step.step is not None][1:] == ["union", "aggregate"]
    assert kept(steps[0]) == {"left_rows": ["buyer", "l.item"], "right_rows": ["buyer", "r.score"]}
    [groups] = kept(steps[-1]).values()
    assert len(groups) == 2


def test_a_query_follows_the_settings_of_its_session(
    stream: StreamUnderTest, spark: SparkSession, folders: Mapping[str, Path]
) -> None:
    def function(session: SparkSession) -> Stream:
        session.conf.set("spark.sql.ansi.enabled", "false")
        return stream_of_sql(streaming(session, folders), "SELECT city, cast(city AS int) AS n FROM buyers")

    stream.run(function)
    rows = stream.table().to_pylist()
    assert any(row["city"] for row in rows)
    assert {row["n"] for row in rows} == {None}, "no error, as in batch"


def test_one_more_value_that_no_row_has_is_no_work_for_not_in(
    stream: StreamUnderTest, spark: SparkSession, tmp_path: Path
) -> None:
    orders, buyers = tmp_path / "orders", tmp_path / "buyers"
    for number, (count, score) in enumerate([(30, 100), (1, 101)]):
        for folder, rows in ((orders, {"item": list(range(count))}), (buyers, {"score": [score]})):
            folder.mkdir(exist_ok=True)
            drop(folder, number, pa.table(rows))

    def function(session: SparkSession) -> Stream:
        for folder, column in ((orders, "item"), (buyers, "score")):
            reader = session.readStream.schema(f"{column} LONG").option("maxFilesPerTrigger", 1)
            reader.parquet(str(folder)).createOrReplaceTempView(folder.name)
        query = "SELECT item FROM orders WHERE item NOT IN (SELECT score FROM buyers)"
        return stream_of_sql(session.table("orders"), query)

    stream.run(function)
    last = stream.epochs[-1].manifest
    assert len(last.steps) > 1
    assert max(step.rows_out for step in last.steps) <= 2, last.steps
    assert stream.table().num_rows == 31


def kept(step: Stream) -> dict[str, list[str]]:
    """The columns of the query in each state table of a step, but not what an epoch keeps for itself."""
    tables = declared_operator(step).pipeline.tables
    columns = {table.name: [name for name in table.schema.names if not name.startswith("_")] for table in tables}
    return {name: each for name, each in columns.items() if "arriv" not in name and name != "emitted"}
