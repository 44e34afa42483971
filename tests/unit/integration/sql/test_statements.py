"""Each statement of a file declares a table, a view or a source; what it cannot declare is refused with its line."""

from pathlib import Path

import pytest

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.integration.sql.sql_file import SqlFile
from dagster_ckpt.integration.sql.statements import (
    Declared,
    SqlColumn,
    SqlSourceView,
    SqlTable,
    SqlView,
    StatementKind,
    declarations,
)


def declared(text: str, path: Path | None = None) -> list[Declared]:
    return declarations(SqlFile("shop.sql", text, path))


def one_table(text: str) -> SqlTable:
    [table] = declared(text)
    assert isinstance(table, SqlTable)
    return table


def refusal(text: str) -> str:
    with pytest.raises(InvalidPipelineError) as refused:
        declared(text)
    return str(refused.value)


def test_several_statements_in_one_file_with_their_lines() -> None:
    text = """-- the shop; all of it
CREATE TEMPORARY VIEW orders (id BIGINT COMMENT 'a; b', price DECIMAL(8, 2)) USING parquet
OPTIONS (path '/data/orders', maxFilesPerTrigger 1, 'mergeSchema' = true);

CREATE TEMPORARY VIEW large AS SELECT * FROM orders WHERE note <> ';' /* ; */;

create streaming table large_orders as
SELECT * FROM STREAM large;
CREATE MATERIALIZED VIEW totals AS SELECT count(*) AS n FROM orders
"""
    orders, large, large_orders, totals = declared(text)
    assert isinstance(orders, SqlSourceView)
    assert (orders.format, orders.schema) == ("parquet", "id BIGINT COMMENT 'a; b', price DECIMAL(8, 2)")
    assert orders.options == {"path": "/data/orders", "maxFilesPerTrigger": "1", "mergeSchema": "true"}
    assert isinstance(large, SqlView)
    assert large.query.text == "SELECT * FROM orders WHERE note <> ';'"
    assert isinstance(large_orders, SqlTable)
    assert isinstance(totals, SqlTable)
    assert (large_orders.kind, totals.kind) == (StatementKind.STREAMING_TABLE, StatementKind.MATERIALIZED_VIEW)
    assert [each.place.line for each in (orders, large, large_orders, totals)] == [2, 5, 7, 9]
    assert large_orders.query.place().line == 8
    assert large_orders.query.place_of_line(1).line == 8


def test_a_table_has_columns_a_comment_and_properties() -> None:
    table = one_table("""
        CREATE OR REFRESH MATERIALIZED VIEW IF NOT EXISTS `totals` (
            buyer STRING COMMENT 'Who it''s for',
            pairs MAP<STRING, ARRAY<INT>>,
            spent DECIMAL(10, 2) COMMENT "in euro")
        COMMENT 'What each buyer\\nspent.'
        TBLPROPERTIES (dagster_ckpt.shards = 4, 'quality' 'gold', balance = -1.5)
        TBLPROPERTIES ('dagster_ckpt.autostart' = TRUE)
        AS WITH a AS (SELECT 1) SELECT * FROM orders
    """)
    assert table.name == "totals"
    assert table.columns == (
        SqlColumn("buyer", "STRING", "Who it's for"),
        SqlColumn("pairs", "MAP<STRING, ARRAY<INT>>", None),
        SqlColumn("spent", "DECIMAL(10, 2)", "in euro"),
    )
    assert table.comment == "What each buyer\nspent."
    assert {each.name: (each.value, each.place.line) for each in table.properties} == {
        "dagster_ckpt.shards": ("4", 7),
        "quality": ("gold", 7),
        "balance": ("-1.5", 7),
        "dagster_ckpt.autostart": ("TRUE", 8),
    }
    assert table.query.text == "WITH a AS (SELECT 1) SELECT * FROM orders"


def test_a_query_alone_is_named_by_its_file() -> None:
    [table] = declared("-- who flies\nSELECT * FROM orders;", Path("/models/orders_by_carrier.sql"))
    assert isinstance(table, SqlTable)
    assert (table.name, table.kind, table.query.text) == (
        "orders_by_carrier",
        StatementKind.MATERIALIZED_VIEW,
        "SELECT * FROM orders",
    )
    assert "CREATE MATERIALIZED VIEW name AS before it. found=SELECT, file=shop.sql, line=1" in refusal("SELECT 1")
    two = "CREATE MATERIALIZED VIEW a AS SELECT 1 FROM b;\n\nSELECT 2"
    with pytest.raises(InvalidPipelineError, match=r"only statement.*found=SELECT, file=shop.sql, line=3"):
        declared(two, Path("/models/a.sql"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("CREATE TABLE t AS SELECT 1", "write CREATE STREAMING TABLE for rows that only come"),
        ("CREATE VIEW v AS SELECT 1", "written CREATE TEMPORARY VIEW"),
        ("CREATE FLOW f AS INSERT INTO t BY NAME SELECT 1", "one with UNION ALL"),
        ("SET a = b", "settings of Spark are in its resource"),
        ("USE shop", "write names of Spark's catalog in full"),
        ("DROP TABLE t", "a statement is CREATE STREAMING TABLE, CREATE MATERIALIZED VIEW or CREATE TEMPORARY VIEW"),
        ("CREATE STREAMING TABLE t", "a table is what its query gives"),
        ("CREATE STREAMING TABLE t (a INT)", "CREATE TEMPORARY VIEW name (columns) USING format"),
        ("CREATE STREAMING TABLE t AS INSERT 1", "expected a query"),
        ("CREATE STREAMING TABLE AS SELECT 1", "expected"),
        ("CREATE STREAMING TABLE a.b AS SELECT 1", "leave the part before the dot out. name=a.b"),
        ("CREATE MATERIALIZED VIEW t (a COMMENT 'x') AS SELECT 1", "a column has a name, a type and"),
        ("CREATE MATERIALIZED VIEW t (a INT NOT NULL) AS SELECT 1", "column=a, found=NOT"),
        ("CREATE MATERIALIZED VIEW t (a INT, A INT) AS SELECT 1", "a column is there twice"),
        ("CREATE MATERIALIZED VIEW t (CONSTRAINT c EXPECT (a > 1)) AS SELECT 1", "write an asset check"),
        ("CREATE MATERIALIZED VIEW t PARTITIONED BY (a) AS SELECT 1", "leave PARTITIONED BY out"),
        ("CREATE MATERIALIZED VIEW t CLUSTER BY (a) AS SELECT 1", "leave CLUSTER BY out"),
        ("CREATE MATERIALIZED VIEW t USING delta AS SELECT 1", "deliver it to have it elsewhere too"),
        ("CREATE MATERIALIZED VIEW t SCHEDULE EVERY 1 HOUR AS SELECT 1", "'dagster_ckpt.mode' = 'continuous'"),
        ("CREATE MATERIALIZED VIEW t COMMENT AS SELECT 1", "expected a text in quotes. found=AS"),
        ("CREATE MATERIALIZED VIEW t TBLPROPERTIES (a = 1, A = 2) AS SELECT 1", "this is given twice"),
        ("CREATE MATERIALIZED VIEW t TBLPROPERTIES (a = ) AS SELECT 1", "expected a value. found=)"),
        ("CREATE MATERIALIZED VIEW t TBLPROPERTIES (a = 1 b = 2) AS SELECT 1", "expected ,. found=b"),
        ("CREATE TEMPORARY VIEW v (a INT) AS SELECT 1", "a view has the columns of its query"),
        ("CREATE TEMPORARY VIEW v USING parquet OPTIONS (path '/x') COMMENT 'y'", "a source ends with its OPTIONS"),
        ("CREATE OR REFRESH TEMPORARY VIEW v AS SELECT 1", "found=CREATE OR"),
        ("SELECT 'never ends", "a text or name that begins with ' has no end"),
        ("SELECT 1 /* never ends", "a comment or a text has no end"),
    ],
)
def test_what_a_statement_cannot_say_is_refused_with_its_line(text: str, expected: str) -> None:
    error = refusal(f"\n\n{text}")
    assert expected in error
    assert error.endswith("file=shop.sql, line=3")
