"""What the page on changes promises, as a table: the code before and after, in SQL, Python, YAML and DataFrames.

A stream goes on if its pipelines fit, which needs no rows. Some are run: `test_code_that_changed_keeps_its_state`.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from dagster_ckpt import StreamingComponent, agg
from dagster_ckpt.integration.explain import _user_function
from dagster_ckpt.protocol.manifest.manifest import Pipeline
from dagster_ckpt.protocol.transitions.compatibility import breaking_changes
from dagster_ckpt.protocol.transitions.step_changes import StepChange
from dagster_ckpt.runtime.declared.step_parts import Upstream
from dagster_ckpt.runtime.declared.stream import Stream
from dagster_ckpt.runtime.driver.stream_checks import plan_stream
from dagster_ckpt.runtime.plans.returned import stream_returned

Code = str | Callable[[Stream], Stream | DataFrame] | list[dict[str, Any]]
"""A query in SQL, what a function returns, or steps in YAML."""

COLUMNS = "k string, v int, w int, d double, at timestamp, x array<int>"
WITH_ANOTHER = "new string, k string, v int, w int, d double, at timestamp, x array<int>"
IN_ANOTHER_ORDER = "x array<int>, at timestamp, w int, v int, d double, k string"
WIDER = "k string, v bigint, w int, d double, at timestamp, x array<int>"
CARRIERS, CARRIERS_AND_MORE = "k string, name string", "more date, name string, k string"


def query(select: str, rows: str = "FROM t", behind: str = "GROUP BY k") -> str:
    return f"SELECT {select} {rows} {behind}"


def by_key(**aggregates: agg.Aggregation) -> Callable[[Stream], Stream]:
    return lambda rows: rows.key_by("k").aggregate(**aggregates)


def grouped(*columns: str) -> Callable[[Stream], DataFrame]:
    return lambda rows: rows.to_df().groupBy("k").agg(*map(F.expr, columns))


def in_yaml(**aggregates: Any) -> list[dict[str, Any]]:
    return [{"key_by": ["k"]}, {"aggregate": aggregates}]


JOINED = "FROM t JOIN carriers c ON t.k = c.k AND c.name > 'A'"
EXPLODED = "FROM t LATERAL VIEW explode(x) AS e"
COUNTED = "SELECT k, count(*) AS n, sum(v) AS s FROM t GROUP BY k"

UNITED = "SELECT * FROM t UNION ALL SELECT concat(k, 'x'), v, w, d, at, x FROM t"
OF_JOIN = query("name, sum(v) AS s, max(w) AS m", JOINED, "GROUP BY name")

GOES_ON: dict[str, tuple[Code, Code]] = {
    "an aggregate is dropped, in Python": (by_key(n=agg.count(), s=agg.sum("v")), by_key(n=agg.count())),
    "an aggregate is dropped, in YAML": (in_yaml(n="count()", s={"sum": "v"}), in_yaml(n="count()")),
    "an aggregate is dropped, of a DataFrame": (
        grouped("count(*) AS n", "sum(v) AS s"),
        grouped("count(*) AS n"),
    ),
    "an aggregate is dropped": (query("k, count(*) AS n, sum(v) AS s"), query("k, count(*) AS n")),
    "the first aggregate is dropped": (query("k, avg(v) AS a, count(*) AS n, sum(w) AS s"), query("k, sum(w) AS s")),
    "an aggregate of all rows is dropped": (
        query("count(*) AS n, sum(v) AS s, max(w) AS m", behind=""),
        query("max(w) AS m", behind=""),
    ),
    "aggregates are renamed and in another order": (
        query("k, count(*) AS n, sum(v) AS s, avg(d) AS a"),
        query("avg(d) AS mean, sum(v) AS total, k AS key, count(*) AS rows"),
    ),
    "a mean is added to a total, in Python": (by_key(s=agg.sum("v")), by_key(s=agg.sum("v"), a=agg.avg("v"))),
    "a mean is added to a total, in YAML": (in_yaml(s={"sum": "v"}), in_yaml(s={"sum": "v"}, a={"avg": "v"})),
    "a mean is added to a total, of a DataFrame": (grouped("sum(v)"), grouped("avg(v)", "sum(v)")),
    "a mean is added to a total": (query("k, count(*) AS n, sum(v) AS s"), query("k, avg(v), count(*), sum(v) AS s")),
    "a total is added to a mean": (query("k, avg(d) AS a, max(w)"), query("k, avg(d) AS a, sum(d), max(w)")),
    "a count is added to a total": (query("k, sum(v)"), query("k, count(v), sum(v)")),
    "an expression's aggregate is dropped": (
        query("k, sum(v + 1) AS one, sum(v * 2) AS two"),
        query("k, sum(v * 2) AS two"),
    ),
    "an aggregate with a filter of its own is dropped": (
        query("k, count(*) FILTER (WHERE w > 1) AS n, sum(v) FILTER (WHERE w > 2) AS s"),
        query("k, sum(v) FILTER (WHERE w > 2) AS s"),
    ),
    "an aggregate behind a filter is dropped": (
        query("k, count(*) AS n, sum(v) AS s", "FROM t WHERE w > 3"),
        query("k, count(*) AS n", "FROM t WHERE w > 3"),
    ),
    "an aggregate of exploded rows is dropped": (
        query("k, count(*) AS n, sum(v) AS s, max(e) AS m", EXPLODED),
        query("k, max(e) AS m", EXPLODED),
    ),
    "an aggregate of windows is dropped": (
        query("window.start AS at, count(*) AS n, sum(v) AS s", behind="GROUP BY window(at, '1 hour')"),
        query("count(*) AS n, window.start AS at", behind="GROUP BY window(at, '1 hour')"),
    ),
    "an aggregate of grouping sets is dropped": (
        query("k, w, count(*) AS n, sum(v) AS s", behind="GROUP BY CUBE (k, w)"),
        query("w, k, count(*) AS n", behind="GROUP BY CUBE (k, w)"),
    ),
    "an aggregate below HAVING is dropped": (
        query("k, count(*) AS n, sum(v) AS s", behind="GROUP BY k HAVING n > 1"),
        query("k, count(*) AS n", behind="GROUP BY k HAVING n > 1"),
    ),
    "a filter behind the groups": (COUNTED, f"{COUNTED} HAVING n > 1"),
    "an expression behind the groups": (COUNTED, f"SELECT k, n, s * 2 AS s FROM ({COUNTED})"),
    "columns of a join in another order": (
        f"SELECT t.k, v, name {JOINED}",
        "SELECT name, t.k AS key, v AS value FROM t JOIN carriers c ON c.name > 'A' AND c.k = t.k",
    ),
    "aggregates of a join are renamed": (
        query("name, sum(v) AS s, count(*) AS n", JOINED, "GROUP BY name"),
        query("count(*) AS rows, name AS of, sum(v) AS total", JOINED, "GROUP BY name"),
    ),
    "an aggregate of a union is dropped": (
        query("k, sum(v) AS s, count(w) AS n", f"FROM ({UNITED})"),
        query("k, sum(v) AS s", f"FROM ({UNITED})"),
    ),
    "functions of a partition in another order": (
        query("k, row_number() OVER p AS r, lag(w) OVER p AS l", "FROM t", "WINDOW p AS (PARTITION BY k ORDER BY v)"),
        query("lag(w) OVER p AS l, row_number() OVER p AS r, k", "FROM t", "WINDOW p AS (PARTITION BY k ORDER BY v)"),
    ),
}
"""By what changes: the code before and after."""
NOTHING_KEPT: dict[str, tuple[Code, Code]] = {
    "a column is added, in Python": (lambda rows: rows.select("k"), lambda rows: rows.select("v", "k")),
    "a column is added, of a DataFrame": (
        lambda rows: rows.frame.select("k"),
        lambda rows: rows.frame.select("k", "v"),
    ),
    "a column is added, in YAML": ([{"select": ["k"]}], [{"select": ["k", "v"]}]),
    "a column is added": ("SELECT k FROM t", "SELECT k, v FROM t"),
    "a column is dropped": ("SELECT k, v + 1 AS more FROM t WHERE w > 1", "SELECT k FROM t WHERE w > 1"),
    "a filter": ("SELECT k FROM t WHERE w > 1", "SELECT k FROM t WHERE w > 2"),
}
"""The same of streams without state."""
READS_LITTLE: dict[str, Code] = {
    "aggregates, in Python": by_key(n=agg.count(), s=agg.sum("v")),
    "aggregates": query("k, count(*), sum(v)"),
    "aggregates of a DataFrame": grouped("count(*)", "sum(v)"),
    "a filter of a column that it does not group": query("k, count(*)", "FROM t WHERE w > 1"),
    "an inner join": f"SELECT t.k, v, name {JOINED}",
    "an outer join": "SELECT c.name, v FROM t LEFT JOIN carriers c ON t.k = c.k",
    "a join on more than keys": "SELECT name, v FROM t JOIN carriers c ON t.k = c.k AND c.name > CAST(t.w AS string)",
    "a join without keys": "SELECT name, v FROM t CROSS JOIN carriers c",
    "a semi join": "SELECT k, v FROM t WHERE EXISTS (SELECT 1 FROM carriers c WHERE c.k = t.k AND c.name > 'A')",
    "an anti join": "SELECT k, v FROM t WHERE k NOT IN (SELECT k FROM carriers)",
    "a union": "SELECT k FROM t UNION ALL SELECT name FROM carriers",
    "distinct rows": "SELECT DISTINCT k, w FROM t",
    "a difference": "SELECT k FROM t EXCEPT SELECT k FROM carriers",
    "the first rows": """
        SELECT k, v FROM (SELECT *, row_number() OVER (PARTITION BY k ORDER BY v) AS r FROM t) WHERE r = 1
    """,
    "functions of a partition": "SELECT k, lag(v) OVER (PARTITION BY k ORDER BY at) AS before FROM t",
    "a subquery": "SELECT k, v FROM t WHERE v > (SELECT avg(v) FROM t)",
    "exploded rows": query("e, count(*)", EXPLODED, "GROUP BY e"),
    "sessions": query(
        "k, session_window.start AS at, count(*) AS n", behind="GROUP BY k, session_window(at, '1 hour')"
    ),
}
"""Code that does not read all columns."""
REFUSED: dict[str, tuple[Code, Code, str]] = {
    "another filter": (
        query("k, count(*)", "FROM t WHERE v > 1"),
        query("k, count(*)", "FROM t WHERE v > 2"),
        r"WHERE .*v > 1.*, now it is .WHERE .*v > 2",
    ),
    "another expression": (query("k, sum(v + 1) AS s"), query("k, sum(v + 2) AS s"), r"has no _.*\(v \+ 2\)"),
    "another aggregate": (query("k, sum(v) AS s"), query("k, max(v) AS s"), r"has no _max\(v\)"),
    "an aggregate of all rows": (
        query("k, count(*) AS n"),
        query("k, count(*) AS n, sum(v) AS s"),
        r"has no _sum\(v\)",
    ),
    "a total of a mean of longs": (query("k, avg(v * 1L) AS a"), query("k, sum(v * 1L) AS s"), r"has no _sum\("),
    "another key": (query("k, count(*)"), query("w, count(*)", behind="GROUP BY w"), "the key was k, now it is w"),
    "another source": ("SELECT k FROM t", "SELECT k FROM carriers", "now also reads"),
    "another explosion": (
        query("k, count(*)", EXPLODED),
        query("k, count(*)", EXPLODED.replace("explode(x)", "explode(array(1, 2))")),
        "GENERATE",
    ),
    "another column of a join": (
        query("name, max(v) AS m", JOINED, "GROUP BY name"),
        query("name, max(w) AS m", JOINED, "GROUP BY name"),
        r"l\.w was added",
    ),
}
"""By what changes: the code before and after, and what is said of it."""


@dataclass(frozen=True)
class Tables:
    """The inputs `t` and `carriers` with these columns: files, or the tables of upstreams that append or change."""

    session: SparkSession
    folder: Path
    kind: str

    def pipeline(self, code: Code, columns: str = COLUMNS, carriers: str = CARRIERS) -> Pipeline:
        tables = {"t": self._rows("t", columns), "carriers": self._rows("carriers", carriers)}
        returned = self._returned(code, tables)
        return plan_stream("a", stream_returned("a", returned, self.session, tables)).dataflow.pipeline

    def _rows(self, name: str, columns: str) -> Stream:
        kinds = ", _change_type string" if self.kind == "changes" else ""
        (self.folder / name).mkdir(exist_ok=True)
        frame = self.session.readStream.schema(columns + kinds).parquet(str(self.folder / name))
        upstream = None if self.kind == "files" else Upstream(name, None, changes=self.kind == "changes")
        return Stream(frame, upstream=upstream)

    def _returned(self, code: Code, tables: dict[str, Stream]) -> object:
        if isinstance(code, str):
            return code
        if callable(code):
            return code(tables["t"])
        attributes = {"asset": {"key": "a"}, "upstream": "t", "steps": code}
        component = StreamingComponent.from_attributes_dict(attributes=attributes)
        return _user_function(dg.component_defs(component=component).get_assets_def("a"))(tables["t"])


@pytest.fixture(params=["files", *(pytest.param(kind, marks=pytest.mark.long) for kind in ("appends", "changes"))])
def tables(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Tables:
    return Tables(spark, tmp_path, request.param)


def what_breaks(before: Pipeline, after: Pipeline) -> tuple[str, ...]:
    """Why the stream does not go on by itself: it does where steps that keep rows alone start over."""
    return () if StepChange.between(before, after).is_of_rows_alone else breaking_changes(before, after)


def test_aggregates_and_what_is_behind_them_may_change(tables: Tables, subtests: pytest.Subtests) -> None:
    for change, (before, after) in GOES_ON.items():
        with subtests.test(change=change):
            assert what_breaks(tables.pipeline(before), tables.pipeline(after)) == ()


def test_an_aggregate_of_a_join_is_dropped_where_its_rows_only_come(tables: Tables) -> None:
    before, after = tables.pipeline(OF_JOIN), tables.pipeline(OF_JOIN.replace(", max(w) AS m", ""))
    found = "; ".join(what_breaks(before, after))
    assert bool(found) is (tables.kind == "changes")
    assert not found or "step 1: state table left_rows's column l.w was removed" in found


def test_columns_of_a_stream_without_state_come_and_go(
    spark: SparkSession, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    tables = Tables(spark, tmp_path, "appends")
    for change, (before, after) in NOTHING_KEPT.items():
        with subtests.test(change=change):
            assert breaking_changes(tables.pipeline(before), tables.pipeline(after)) == ()


def test_an_input_gets_columns_and_another_order_of_them(tables: Tables, subtests: pytest.Subtests) -> None:
    for what, code in READS_LITTLE.items():
        before = tables.pipeline(code)
        for columns, carriers in ((WITH_ANOTHER, CARRIERS), (IN_ANOTHER_ORDER, CARRIERS_AND_MORE)):
            with subtests.test(what=what, columns=columns):
                assert breaking_changes(before, tables.pipeline(code, columns, carriers)) == ()


def test_a_column_gets_wider(tables: Tables, subtests: pytest.Subtests) -> None:
    for what in ("aggregates, in Python", "aggregates", "aggregates of a DataFrame", "exploded rows"):
        with subtests.test(what=what):
            code = READS_LITTLE[what]
            assert breaking_changes(tables.pipeline(code), tables.pipeline(code, WIDER)) == ()


def test_what_needs_the_past_is_refused(tables: Tables, subtests: pytest.Subtests) -> None:
    for change, (before, after, said) in REFUSED.items():
        with subtests.test(change=change):
            found = "; ".join(what_breaks(tables.pipeline(before), tables.pipeline(after)))
            assert re.search(said, found), found
