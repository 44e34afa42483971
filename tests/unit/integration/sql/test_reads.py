"""The names that a query reads are found without Spark; those of its own are none."""

import pytest

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.integration.sql.reads import blank_out, find_reads
from dagster_ckpt.integration.sql.sql_file import SqlFile
from dagster_ckpt.integration.sql.statements import Query


def query(text: str) -> Query:
    before = "-- shop\n"
    return Query(SqlFile("shop.sql", before + text), len(before), len(before + text))


def names(text: str) -> list[str]:
    return [("STREAM " if read.stream else "") + read.name for read in find_reads(query(text))]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT * FROM orders", ["orders"]),
        ("FROM orders SELECT a", ["orders"]),
        ("SELECT * FROM STREAM orders o JOIN STREAM(buyers) b USING (id)", ["STREAM orders", "STREAM buyers"]),
        ("SELECT * FROM stream `my orders`", ["STREAM my orders"]),
        ("SELECT * FROM stream", ["stream"]),
        ("SELECT * FROM stream WHERE a > 1", ["stream"]),
        ("SELECT stream FROM orders", ["orders"]),
        ("SELECT o.a FROM orders AS o, LATERAL (SELECT b FROM buyers y WHERE y.a = o.a) z", ["orders", "buyers"]),
        (
            "SELECT a FROM orders WHERE a IN (SELECT b FROM buyers) AND EXISTS (SELECT 1 FROM c)",
            ["orders", "buyers", "c"],
        ),
        ("WITH q AS (SELECT * FROM z), r AS (SELECT * FROM Q) SELECT * FROM R JOIN t USING (a)", ["z", "t"]),
        ("WITH orders AS (SELECT * FROM orders WHERE a > 1) SELECT * FROM orders", ["orders"]),
        ("WITH a AS (SELECT 1 FROM b), b AS (SELECT 1 FROM x) SELECT * FROM b", ["b", "x"]),
        ("SELECT * FROM (WITH q AS (SELECT * FROM z) SELECT * FROM q) JOIN q USING (a)", ["z", "q"]),
        ("WITH q AS (SELECT * FROM z) SELECT * FROM db.q", ["z", "db.q"]),
        ("SELECT * FROM a UNION ALL BY NAME SELECT * FROM b EXCEPT SELECT * FROM c", ["a", "b", "c"]),
        ("SELECT explode(tags) FROM t LATERAL VIEW explode(u) q AS z", ["t"]),
        ("SELECT * FROM range(10) r JOIN t ON r.id = t.id", ["t"]),
        ("SELECT * FROM VALUES (1, 2) AS v(a, b) JOIN t USING (a)", ["t"]),
        ("SELECT transform(xs, x -> x + 1), '${env:HOME}' FROM cat.db.t", ["cat.db.t"]),
        ("SELECT w, count(*) FROM STREAM o WATERMARK at DELAY OF INTERVAL 1 HOUR 5 MINUTES GROUP BY w", ["STREAM o"]),
        ("SELECT * FROM o WATERMARK at DELAY OF INTERVAL '10 minutes' AS x JOIN p USING (a)", ["o", "p"]),
        ("SELECT a FROM (SELECT * FROM o) WATERMARK to_timestamp(a) AS t DELAY OF INTERVAL '1' DAY AS x", ["o"]),
        ("FROM t |> WHERE a > 1 |> JOIN u USING (a) |> AGGREGATE count(*) GROUP BY a", ["t", "u"]),
        ("SELECT a, row_number() OVER (PARTITION BY b ORDER BY c) AS n FROM t QUALIFY n = 1", ["t"]),
        ("SELECT window.end, a FROM t GROUP BY window(at, '1 hour'), a", ["t"]),
        (
            "SELECT a FROM STREAM t GROUP BY\nWindow (at, '1 hour') HAVING count(*) > (SELECT b FROM u)",
            ["STREAM t", "u"],
        ),
        ("SELECT sum(a) OVER window FROM t WINDOW window AS (PARTITION BY b)", ["t"]),
        ("SELECT 'FROM x', a -- FROM y\nFROM t /* JOIN z */", ["t"]),
    ],
)
def test_the_tables_of_a_query(text: str, expected: list[str]) -> None:
    assert names(text) == expected


def test_each_read_has_its_line_and_the_place_of_stream() -> None:
    given = query("SELECT *\nFROM STREAM\n  orders\nJOIN buyers USING (id)")
    orders, buyers = find_reads(given)
    assert (orders.place.line, buyers.place.line) == (4, 5)
    assert orders.stream is not None
    assert blank_out(given.text, [orders.stream]) == "SELECT *\nFROM       \n  orders\nJOIN buyers USING (id)"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT a b c\nFROM t", "'dagster_ckpt.reads' = 'orders, customers'). near=c, "),
        ("TABLE orders", "'dagster_ckpt.reads' = 'orders, customers'). near=TABLE"),
        ("SELECT *\nFROM parquet.`/data/x`", "files are a source: declare it"),
        ("SELECT * FROM read_files('/x', format => 'json')", "CREATE TEMPORARY VIEW name (columns) USING parquet"),
        ("SELECT * FROM IDENTIFIER('a')", "write the table's name as it is"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_line(text: str, expected: str) -> None:
    with pytest.raises(InvalidPipelineError) as refused:
        find_reads(query(text))
    assert expected in str(refused.value)
    line = 3 if "\nFROM parquet" in text else 2
    assert str(refused.value).endswith(f"file=shop.sql, line={line}")
