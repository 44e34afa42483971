"""Streams in SQL on Spark: Spark has the last word, and what it or the plan refuses has its place in the file."""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from dagster_ckpt import InvalidPipelineError, Stream, changes_from, source, streaming_sql
from dagster_ckpt.testing import run_batches

pytestmark = pytest.mark.usefixtures("spark_of_all")

ORDERS = pa.schema([("buyer", pa.string()), ("price", pa.int32()), ("at", pa.timestamp("us", "UTC"))])
CHANGES = pa.schema([("op", pa.string()), ("name", pa.string()), ("city", pa.string()), ("number", pa.int64())])
log = source("log", lambda spark: spark.readStream.format("rate").load())


def customers(spark: SparkSession) -> Stream:
    return changes_from(log(spark), "op-column", key="name", sequence="number")


def orders(*rows: tuple[str, int]) -> pa.Table:
    at = datetime(2024, 1, 1, tzinfo=UTC)
    return pa.Table.from_pylist([{"buyer": buyer, "price": price, "at": at} for buyer, price in rows], schema=ORDERS)


def changes(*rows: tuple[str, str, str | None, int]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(CHANGES.names, row, strict=True)) for row in rows], schema=CHANGES)


SOURCE = """
CREATE TEMPORARY VIEW orders (buyer STRING, price INT, at TIMESTAMP)
USING parquet OPTIONS (path '${env:SHOP}/orders', maxFilesPerTrigger 1);
"""


def assets(text: str, **options: Any) -> dict[str, dg.AssetsDefinition]:
    made = streaming_sql(SOURCE + text, sources={"customers": customers}, **options)
    return {asset.key.path[-1]: asset for asset in made}


def table(
    asset: dg.AssetsDefinition, keys: Mapping[str, list[str]] | None = None, **batches: list[pa.Table]
) -> list[tuple[object, ...]]:
    rows = run_batches(asset, batches, keys=keys).to_pylist()
    return sorted((tuple(row.values()) for row in rows), key=repr)


def test_tables_views_and_a_feed_of_changes() -> None:
    made = assets("""
        CREATE TEMPORARY VIEW large AS
          -- what is worth a look
          SELECT * FROM orders WHERE price > 1;
        CREATE STREAMING TABLE large_orders (buyer STRING COMMENT 'Who pays.', price INT) AS
          SELECT buyer, price FROM STREAM(large) WATERMARK at DELAY OF INTERVAL 10 MINUTES WHERE buyer <> 'x';
        CREATE MATERIALIZED VIEW spent (buyer STRING, city STRING, euro BIGINT) AS
          WITH orders AS (SELECT buyer, price FROM orders)
          SELECT o.buyer, c.city, sum(o.price) AS euro
          FROM LARGE l JOIN orders o USING (buyer) LEFT JOIN customers c ON c.name = o.buyer GROUP BY ALL;
        CREATE MATERIALIZED VIEW top AS SELECT buyer, euro FROM spent ORDER BY euro DESC LIMIT 1;
    """)
    batches = [orders(("a", 1), ("b", 2), ("x", 9)), orders(("a", 4))]
    assert table(made["large_orders"], orders=batches) == [("a", 4), ("b", 2)]
    log = [changes(("insert", "x", "Oslo", 1), ("insert", "b", "Rome", 1)), changes(("delete", "x", None, 2))]
    spent = table(made["spent"], orders=batches[:1], log=log)
    assert spent == [("b", "Rome", 2), ("x", None, 9)]
    names = ["_change_type", "buyer", "euro"]
    rows = [("insert", "a", 1), ("insert", "b", 2), ("delete", "b", 2)]
    changed = pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows])
    assert table(made["top"], keys={"spent": ["buyer"]}, spent=[changed]) == [("a", 1)]


@pytest.mark.parametrize(
    ("text", "expected", "line"),
    [
        ("CREATE MATERIALIZED VIEW v AS\nSELECT buyer,\n  nope\nFROM orders", "reason=[UNRESOLVED_COLUMN", 6),
        (
            "CREATE MATERIALIZED VIEW v AS\nSELECT *\nFROM orders\nJOIN db.nope USING (a)",
            "[TABLE_OR_VIEW_NOT_FOUND]",
            7,
        ),
        (
            "CREATE TEMPORARY VIEW w AS\nSELECT 1 AS a,\n nope FROM orders;CREATE MATERIALIZED VIEW v AS FROM w",
            "[UNRESOLVED_COLUMN",
            6,
        ),
        (
            "CREATE MATERIALIZED VIEW v TBLPROPERTIES ('dagster_ckpt.reads' = 'orders') AS\nSELECT a\nFROMM orders x",
            "reason=[PARSE_SYNTAX_ERROR] Syntax error at or near 'orders'",
            6,
        ),
        (
            "CREATE MATERIALIZED VIEW v AS\nSELECT * FROM orders WHERE buyer IN\n(SELECT nope FROM customers)",
            "[UNRESOLVED_COLUMN",
            6,
        ),
        (
            "CREATE MATERIALIZED VIEW v AS\nSELECT at FROM orders WHERE at IN (FROM orders SELECT at) GROUP BY buyer",
            "[MISSING_AGGREGATION]",
            5,
        ),
        ("CREATE MATERIALIZED VIEW v AS\nSELECT buyer FROM orders WHERE at < now()", "as time goes by", 5),
        (
            "CREATE MATERIALIZED VIEW v AS\nSELECT\n  last(at, true)\n OVER (ORDER BY at ROWS 2 PRECEDING)FROM orders",
            "IGNORE NULLS",
            6,
        ),
        (
            "CREATE TEMPORARY VIEW w AS\n(FROM orders\n TABLESAMPLE (9 ROWS));CREATE MATERIALIZED VIEW v AS FROM w",
            "LIMIT",
            6,
        ),
        (
            "CREATE STREAMING TABLE v AS\nSELECT buyer, count(*) AS n FROM STREAM orders GROUP BY buyer",
            "write CREATE MATERIALIZED VIEW. table=v",
            4,
        ),
        ("CREATE STREAMING TABLE v AS\nSELECT name FROM STREAM customers", "rows of a streaming table only come", 4),
        (
            "CREATE MATERIALIZED VIEW v (buyer STRING, n BIGINT) AS SELECT 1 AS n, buyer FROM orders",
            "declared=['buyer', 'n'], query=['n', 'buyer']",
            4,
        ),
        (
            "CREATE MATERIALIZED VIEW v (buyer STRING, n INT) AS SELECT buyer, count(*) AS n FROM orders GROUP BY 1",
            "column=n, declared=int, query=bigint",
            4,
        ),
    ],
)
def test_what_spark_or_the_plan_refuses_has_its_place(text: str, expected: str, line: int) -> None:
    asset = assets(text)["v"]
    with pytest.raises(InvalidPipelineError) as refused:
        run_batches(asset, {"orders": [orders(("a", 1))], "log": [changes(("insert", "a", "Oslo", 1))]})
    message = str(refused.value)
    assert expected in message
    assert f"file=<text>, line={line}" in message


def test_options_of_a_source_may_be_environment_variables(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dagster_ckpt.integration.sql.inputs import declared_source
    from dagster_ckpt.integration.sql.sql_file import SqlFile
    from dagster_ckpt.integration.sql.statements import SqlSourceView, declarations

    [view] = declarations(SqlFile("shop.sql", SOURCE))
    assert isinstance(view, SqlSourceView)
    with pytest.raises(InvalidPipelineError, match=r"set it. variable=SHOP, source=orders, file=shop.sql, line=2"):
        declared_source(view)(spark)
    (tmp_path / "orders").mkdir()
    monkeypatch.setenv("SHOP", str(tmp_path))
    frame = declared_source(view)(spark)
    assert frame.isStreaming
    assert frame.columns == ["buyer", "price", "at"]


def test_a_source_that_does_not_stream_is_refused() -> None:
    [asset] = streaming_sql(
        "CREATE MATERIALIZED VIEW v AS SELECT * FROM numbers", sources={"numbers": lambda spark: spark.range(3)}
    )
    with pytest.raises(InvalidPipelineError, match=r"source=numbers, given=DataFrame, file=<text>, line=1"):
        run_batches(asset, {})
