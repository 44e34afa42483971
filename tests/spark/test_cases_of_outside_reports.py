"""Small inputs with right values that others found wrong, each after every epoch."""

import re
from collections import Counter
from math import inf, nan
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.runtime.catalyst.builders.conversions import Conversions
from dagster_ckpt.runtime.catalyst.values import Java
from dagster_ckpt.runtime.declared.stream import Stream
from dagster_ckpt.runtime.plans.compiler import stream_of, stream_of_sql
from tests.spark.changing_tables import after_each_epoch, in_batch, read
from tests.spark.rows_as_bags import nine_digits
from tests.spark.streams import StreamUnderTest
from tests.worlds.queries.tables import Changing, Row


def table(name: str, columns: dict[str, str], *epochs: list[Row]) -> Changing:
    """A table to which rows come, those of each epoch."""
    return Changing(name, columns, None, False, tuple(tuple(("insert", row) for row in rows) for rows in epochs))


FLAGS = {"id": "int", "p": "boolean"}
NAMES = {"id": "int", "s": "string"}
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
    "distinct texts and numbers, by a collation": (
        [table("t", NAMES, [(1, "Oslo"), (2, "OSLO")])],
        "SELECT count(DISTINCT (s COLLATE UTF8_LCASE), 1) AS n FROM t",
        [(1,)],
    ),
    "distinct structs, by a collation": (
        [table("t", NAMES, [(1, "Oslo")], [(2, "OSLO")])],
        "SELECT lower(x.a) FROM (SELECT DISTINCT struct(s COLLATE UTF8_LCASE AS a) AS x FROM t)",
        [("oslo",)],
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


def test_a_group_by_a_collation_shows_a_text_of_the_group_that_is_still_there(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows: tuple[Row, ...] = ((1, "OSLO"), (2, "Oslo"), (3, "rome"))
    epochs = (tuple(("insert", row) for row in rows), (("delete", rows[0]),))
    world = {"t": Changing("t", NAMES, ("id",), True, epochs)}
    query = "SELECT c, count(*) AS n FROM (SELECT s COLLATE UTF8_LCASE AS c FROM t) GROUP BY c"
    before, after = after_each_epoch(spark, tmp_path, world, query)
    assert before == Counter([("OSLO", 2), ("rome", 1)])
    assert after == Counter([("Oslo", 1), ("rome", 1)])


@pytest.mark.parametrize(
    "query",
    [
        "SELECT mode() WITHIN GROUP (ORDER BY c) FROM {t}",
        "SELECT collect_list(DISTINCT c) FROM {t}",
        "SELECT min(struct(c)) FROM {t}",
        "SELECT max(c) OVER (ORDER BY id ROWS UNBOUNDED PRECEDING) FROM {t}",
    ],
)
def test_what_is_not_compared_by_a_collation_is_refused(spark: SparkSession, tmp_path: Path, query: str) -> None:
    world = {"t": table("t", NAMES, [(1, "a")])}
    named = query.format(t="(SELECT id, s COLLATE UTF8_LCASE AS c FROM t)")
    with pytest.raises(InvalidPipelineError, match="COLLATE UTF8_BINARY"):
        stream_of_sql(spark, named, read(spark, tmp_path, world))


def test_a_dataframe_drops_duplicates_by_a_collation(spark: SparkSession, tmp_path: Path) -> None:
    rows: list[Row] = [(1, "Oslo"), (1, "OSLO"), (2, "oslo")]
    stream = StreamUnderTest(spark, tmp_path)

    def function(session: SparkSession) -> Stream:
        read(session, tmp_path, {"t": table("t", NAMES, rows[:1], rows[1:])})["t"].frame.createOrReplaceTempView("t")
        named = session.sql("SELECT id, s COLLATE UTF8_LCASE AS c FROM t")
        both = named.dropDuplicates(["id", "c"]).selectExpr("'both' AS of", "id", "lower(c) AS c")
        return stream_of(both.unionAll(named.dropDuplicates(["c"]).selectExpr("'text'", "0", "lower(c)")))

    stream.run(function)
    found = [tuple(row.values()) for row in stream.rows()]
    assert found == [("both", 1, "oslo"), ("both", 2, "oslo"), ("text", 0, "oslo")]


@pytest.mark.parametrize("collation", ["UTF8_LCASE", "UNICODE_CI"])
def test_a_step_by_a_collation_is_known_by_it_and_the_version_of_its_rules(
    spark: SparkSession, tmp_path: Path, collation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = read(spark, tmp_path, {"t": table("t", NAMES, [(1, "a")])})
    query = f"SELECT count(DISTINCT s) AS n FROM (SELECT s COLLATE {collation} AS s FROM t)"

    def columns() -> list[str]:
        [rows] = stream_of_sql(spark, query, tables).inputs
        return rows.frame.columns

    before, real, rules = columns(), Conversions.collation_keys_in, list[str]()

    def others(convert: Conversions, plan: Java) -> set[str]:
        rules.extend(real(convert, plan))
        return {f"{each}.1" for each in rules}

    assert columns() == before
    monkeypatch.setattr(Conversions, "collation_keys_in", others)
    assert columns() != before
    assert all(re.fullmatch(rf"\S*{collation} [0-9.]+", each) for each in rules)
