"""Random expressions over random rows: Arrow's values are Spark's, or Arrow leaves them to Spark."""

import datetime as dt
import math
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from hypothesis import assume, given
from hypothesis import strategies as st
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from dagster_ckpt.runtime.catalyst.reader import nodes_above
from dagster_ckpt.runtime.catalyst.trees import columns_of_frame, plan_of
from dagster_ckpt.runtime.declared.arrow_plan import arrow_work
from dagster_ckpt.runtime.spark.arrow_schemas import to_spark_schema
from dagster_ckpt.runtime.task.arrow_work import FUNCTIONS, LeftToSparkError
from tests.worlds.examples import examples
from tests.worlds.value_tables import value_tables

_ENDS = {bits: [0, 1, -1, 7, -(2 ** (bits - 1)), 2 ** (bits - 1) - 1] for bits in (8, 16, 32, 64)}
_REALS = [0.0, -0.0, 1.5, -2.25, math.nan, math.inf, -math.inf, 1e300, 5e-324, 3.0]
_VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "t": (pa.int8(), _ENDS[8]),
    "s": (pa.int16(), _ENDS[16]),
    "i": (pa.int32(), _ENDS[32]),
    "l": (pa.int64(), [*_ENDS[64], 2**53 + 1]),
    "f": (pa.float32(), [0.0, -0.0, 1.5, math.nan, math.inf]),
    "d": (pa.float64(), _REALS),
    "x": (pa.string(), ["", "a", "A", "é", "z\0", "\U0001f600", "aa"]),
    "b": (pa.bool_(), [True, False]),
    "day": (pa.date32(), [dt.date(1, 1, 1), dt.date(1582, 10, 4), dt.date(1970, 1, 1), dt.date(9999, 12, 31)]),
    "at": (pa.timestamp("us", "UTC"), [-(10**15), 0, 10**15 + 1]),
    "n": (pa.timestamp("us"), [-(10**15), 0, 10**15 + 1]),
    "raw": (pa.binary(), [b"", b"\xff", b"a"]),
}
_WHOLE, _REAL = ("t", "s", "i", "l"), ("f", "d")
_CONSTANTS = {
    "l": ["0L", "3L", "-7L", "9223372036854775807L"],
    "i": ["0", "5", "-3", "2147483647"],
    "d": ["0.0D", "-0.0D", "2.5D", "double('NaN')", "double('Infinity')"],
    "x": ["''", "'a'", "'é'", "'zz'"],
    "b": ["true", "false", "CAST(NULL AS BOOLEAN)"],
    "day": ["DATE '1970-01-01'", "DATE '2024-02-29'"],
    "at": ["TIMESTAMP '1970-01-01 00:00:00'", "TIMESTAMP '2001-09-09 01:46:40.000001'"],
}


@st.composite
def some_value(draw: st.DrawFn, of: str, depth: int) -> str:
    """An expression of the type of this column."""
    if depth == 0 or draw(st.integers(0, 3)) == 0:
        return draw(st.sampled_from([of, of, *_CONSTANTS.get(of, [])]))

    def more(other: str) -> str:
        return draw(some_value(other, depth - 1))

    kinds = ["if", "coalesce", "case"]
    kinds += ["plus", "minus", "times", "negate", "abs"] if of in (*_WHOLE, *_REAL) else []
    kinds += {"l": ["wider", "remainder"], "i": ["length", "part"], "d": ["divide", "wider"]}.get(of, [])
    kind = draw(st.sampled_from([*kinds, *(["condition"] * 4 if of == "b" else [])]))
    if kind == "condition":
        return draw(some_condition(depth))
    whole, part = draw(st.sampled_from(_WHOLE)), draw(st.sampled_from(["year", "month", "day"]))
    texts: dict[str, Callable[[], str]] = {
        "if": lambda: f"if({more('b')}, {more(of)}, {more(of)})",
        "coalesce": lambda: f"coalesce({more(of)}, {more(of)})",
        "case": lambda: f"CASE WHEN {more('b')} THEN {more(of)} WHEN {more('b')} THEN {more(of)} END",
        "plus": lambda: f"({more(of)} + {more(of)})",
        "minus": lambda: f"({more(of)} - {more(of)})",
        "times": lambda: f"({more(of)} * {more(of)})",
        "negate": lambda: f"(- {more(of)})",
        "abs": lambda: f"abs({more(of)})",
        "wider": lambda: f"CAST({more(whole)} AS {'BIGINT' if of == 'l' else 'DOUBLE'})",
        "remainder": lambda: f"({more('l')} % {draw(st.sampled_from([1, 7, 1000]))})",
        "length": lambda: f"length({more('x')})",
        "part": lambda: f"{part}({more('day')})",
        "divide": lambda: f"({more('d')} / {more('d')})",
    }
    return texts[kind]()


@st.composite
def some_condition(draw: st.DrawFn, depth: int) -> str:
    of = draw(st.sampled_from(sorted(_VALUES)))
    left, right = draw(some_value(of, depth - 1)), draw(some_value(of, depth - 1))
    one, other = draw(some_value("b", depth - 1)), draw(some_value("b", depth - 1))
    sign = draw(st.sampled_from(["=", "<=>", "<", "<=", ">", ">=", "!="]))
    real = draw(some_value(draw(st.sampled_from(_REAL)), depth - 1))
    return draw(
        st.sampled_from(
            [f"({left} {sign} {right})"] * 3
            + [
                f"({left} IN ({left}, {right}))",
                f"({left} IS NULL)",
                f"({left} IS NOT NULL)",
                f"isnan({real})",
                f"({one} AND {other})",
                f"({one} OR {other})",
                f"(NOT {one})",
            ]
        )
    )


@given(value_tables(_VALUES, 1, 12), st.data())
@examples(150, usual=30)
def test_arrow_has_sparks_values(spark_of_all: SparkSession, rows: pa.Table, data: st.DataObject) -> None:
    of = data.draw(st.sampled_from(sorted(_VALUES)))
    text, where = data.draw(some_value(of, 3)), data.draw(some_value("b", 2))
    ansi = data.draw(st.booleans())
    session = spark_of_all.newSession()
    session.conf.set("spark.sql.ansi.enabled", str(ansi).lower())
    frame = session.createDataFrame(rows, to_spark_schema(rows.schema))
    worked = frame.where(where).selectExpr(f"{text} AS found", "l")
    try:
        work = arrow_work(
            nodes_above(session, plan_of(worked), plan_of(frame)),
            columns_of_frame(frame),
            columns_of_frame(worked),
            ["found", "l"],
        )
        columns, count = work.columns(rows)
    except (LeftToSparkError, pa.ArrowInvalid):
        assume(False)  # it is Spark's
    try:
        theirs = worked.toArrow()
    except PySparkException as error:
        raise AssertionError(f"Spark refuses what Arrow computes: {text} WHERE {where}") from error
    assert count == theirs.num_rows
    ours = pa.table(columns, names=["found", "l"])
    assert [field.type for field in ours.schema] == [field.type for field in theirs.schema], text
    assert repr(ours.to_pylist()) == repr(theirs.to_pylist()), f"{text} WHERE {where}"


def test_each_function_is_drawn() -> None:
    drawn = {
        "Abs", "Add", "And", "CaseWhen", "Coalesce", "DayOfMonth", "Divide", "EqualNullSafe", "EqualTo", "GreaterThan",
        "GreaterThanOrEqual", "If", "In", "IsNaN", "IsNotNull", "IsNull", "Length", "LessThan", "LessThanOrEqual",
        "Month", "Multiply", "Not", "Or", "Subtract", "UnaryMinus", "Year",
    }  # fmt: skip
    assert set(FUNCTIONS) == drawn, "a new function is added to the expressions above"
