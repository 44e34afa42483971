"""Small inputs with right values that others found wrong, each after every epoch."""

from collections import Counter
from math import inf, nan
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.changing_tables import after_each_epoch, in_batch
from tests.spark.rows_as_bags import nine_digits
from tests.worlds.queries.tables import Changing, Row


def table(name: str, columns: dict[str, str], *epochs: list[Row]) -> Changing:
    """A table to which rows come, those of each epoch."""
    return Changing(name, columns, None, False, tuple(tuple(("insert", row) for row in rows) for rows in epochs))


FLAGS = {"id": "int", "p": "boolean"}
PAIRS = {"id": "int", "x": "int", "y": "int"}

CASES: dict[str, tuple[list[Changing], str, list[Row]]] = {
    "a tuple whose fields may be null on different sides": (
        [table("t", FLAGS, [(1, True)]), table("u", FLAGS, [(1, True)])],
        "SELECT a.id, b.id AS j FROM t a JOIN u b ON (a.p, isnotnull(a.p)) = (isnotnull(b.p), b.p)",
        [(1, 1)],
    ),
    "a tuple that is equal only to a null": (
        [table("t", FLAGS, [(1, True)]), table("u", FLAGS, [(1, None)])],
        "SELECT a.id, b.id AS j FROM t a JOIN u b ON (a.p, isnull(a.p)) = (isnotnull(b.p), b.p)",
        [],
    ),
    "an intersection of structs": (
        [table("t", FLAGS, [(1, True)]), table("u", FLAGS, [(1, True)])],
        """SELECT CAST(s AS STRING) FROM (SELECT struct(p AS x, isnotnull(p) AS y) AS s FROM t
           INTERSECT SELECT struct(isnotnull(p) AS x, p AS y) FROM u)""",
        [("{true, true}",)],
    ),
    "a tuple with a field that is never null on one side": (
        [table("t", PAIRS, [(1, 5, None), (2, 7, 3)]), table("u", PAIRS, [(1, 5, None), (2, 7, 3)])],
        "SELECT a.id, b.id AS j FROM t a LEFT JOIN u b ON (a.x, a.y) = (b.x, coalesce(b.y, 0))",
        [(1, None), (2, 2)],
    ),
    "the slope of one row with infinities": (
        [table("t", {"d": "wild", "f": "wild"}, [(inf, inf)])],
        "SELECT regr_slope(d, f) AS x, regr_r2(d, f) AS r2, corr(d, f) AS none FROM t",
        [(nan, nan, None)],
    ),
    "a constant beside an infinity": (
        [table("t", {"d": "wild", "f": "wild"}, [(2.0, inf), (2.0, 1.5)])],
        "SELECT corr(d, f) AS x, regr_intercept(d, f) AS y, regr_r2(d, f) AS one, regr_slope(f, d) AS none FROM t",
        [(nan, nan, 1.0, None)],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_table_has_the_right_value(spark: SparkSession, tmp_path: Path, name: str) -> None:
    given, query, right = CASES[name]
    world = {each.name: each for each in given}
    wanted = Counter(tuple(nine_digits(each) if isinstance(each, float) else each for each in row) for row in right)
    last = max(len(each.epochs) for each in given)
    assert in_batch(spark, world, query, last, nine_digits) == wanted
    assert after_each_epoch(spark, tmp_path, world, query, nine_digits)[-1] == wanted
