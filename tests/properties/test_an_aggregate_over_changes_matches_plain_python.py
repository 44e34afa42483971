"""An aggregate over a table whose rows come, change and go, against the same aggregate of the rows that are left."""

from collections import defaultdict
from collections.abc import Iterable
from decimal import Decimal
from fractions import Fraction
from math import inf, isinf, isnan, nan, sqrt
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagster_ckpt.operators import agg
from dagster_ckpt.operators.aggregates.aggregate import RunningAggregate
from dagster_ckpt.protocol.manifest.manifest import InputSpec
from tests.properties.changing_rows import KIND, RANDOMS, SIZES, Bag, histories
from tests.unit.operators.keyed_streams import SHARDS, Row, Stream, in_any_order, replayed
from tests.worlds.examples import examples

SCHEMA = pa.schema(
    [
        ("k", pa.string()),
        ("i", pa.int64()),
        ("f", pa.float64()),
        ("g", pa.float32()),
        ("d", pa.decimal128(20, 2)),
        ("b", pa.bool_()),
    ]
)
FLOATS = st.floats(-1e6, 1e6) | st.sampled_from([nan, inf, -inf, 0.0, -0.0, 0.1, 1e300, -1e300, 1.5e308, 5e-324, None])
ROWS = st.fixed_dictionaries(
    {
        "k": st.sampled_from(["a", "b", None]),
        "i": st.integers(-(2**53), 2**53) | st.sampled_from([0, 1, None]),
        "f": FLOATS,
        "g": st.sampled_from([nan, inf, 0.5, -0.25, -0.0, 0.0, 1.5, None]),
        "d": st.integers(-(10**19), 10**19).map(lambda cents: cents * Decimal("0.01")) | st.none(),
        "b": st.sampled_from([True, True, False, None]),
    }
)
AGGREGATES = {
    "rows": agg.count(),
    "f_sum": agg.sum("f"),
    "f_avg": agg.avg("f"),
    "g_sum": agg.sum("g"),
    "f_var": agg.variance("f"),
    "g_std": agg.stddev("g"),
    "i_std": agg.stddev("i"),
    "d_var": agg.variance("d"),
    "g_pop_var": agg.var_pop("g"),
    "i_pop_std": agg.stddev_pop("i"),
    "fi_pop_cov": agg.covar_pop("f", "i"),
    "gi_cov": agg.covar_samp("g", "i"),
    "gi_corr": agg.corr("g", "i"),
    "gd_slope": agg.regr_slope("g", "d"),
    "gd_intercept": agg.regr_intercept("g", "d"),
    "gi_r2": agg.regr_r2("g", "i"),
    "b_true": agg.count_if("b"),
    "b_all": agg.bool_and("b"),
    "b_any": agg.bool_or("b"),
    "f_kinds": agg.count_distinct("f"),
    "g_kinds": agg.count_distinct("g"),
    "i_kinds": agg.count_distinct("i"),
    "d_kinds": agg.count_distinct("d"),
}
MEMORY = st.sampled_from([1 << 12, 1 << 28])


def as_double(exact: Fraction) -> float:
    try:
        return float(exact)
    except OverflowError:
        return inf if exact > 0 else -inf


def total(values: list[float]) -> float | None:
    """Rounded once."""
    if not values:
        return None
    if any(map(isnan, values)) or {inf, -inf} <= set(values):
        return nan
    infinite = [value for value in values if isinf(value)]
    return infinite[0] if infinite else as_double(sum(map(Fraction, values), Fraction(0)))


def variance(values: list[float], ddof: int = 1) -> float | None:
    if len(values) <= ddof:
        return None
    if any(isnan(value) or isinf(value) for value in values):
        return nan
    exact = list(map(Fraction, values))
    mean = sum(exact, Fraction(0)) / len(exact)
    return as_double(sum(((value - mean) ** 2 for value in exact), Fraction(0)) / (len(exact) - ddof))


def moment(rows: list[Row], y: str, x: str) -> tuple[list[tuple[float, float]], Fraction | None]:
    """The rows that have both values, and the sum of the products of their distances from the means; None: NaN."""
    pairs = [(float(row[y]), float(row[x])) for row in rows if row[y] is not None and row[x] is not None]
    if any(isnan(value) or isinf(value) for pair in pairs for value in pair):
        return pairs, None
    ys, xs = ([Fraction(pair[at]) for pair in pairs] for at in (0, 1))
    n = max(len(pairs), 1)
    y_mean, x_mean = sum(ys, Fraction(0)) / n, sum(xs, Fraction(0)) / n
    return pairs, sum(((b - y_mean) * (a - x_mean) for b, a in zip(ys, xs, strict=True)), Fraction(0))


def covariance(rows: list[Row], y: str, x: str, ddof: int) -> float | None:
    pairs, products = moment(rows, y, x)
    if len(pairs) <= ddof:
        return None
    return nan if products is None else as_double(products / (len(pairs) - ddof))


def line(rows: list[Row], y: str, x: str) -> dict[str, float | None]:
    pairs, products = moment(rows, y, x)
    squares = [moment([{"v": pair[at]} for pair in pairs], "v", "v")[1] for at in (0, 1)]
    y2, x2 = squares
    if products is None:  # a value is not finite
        constant_y, constant_x = y2 == 0, x2 == 0
        unknown = None if constant_x else nan
        return {
            "corr": None if len(pairs) < 2 else nan,
            "slope": unknown,
            "intercept": unknown,
            "r2": None if constant_x else 1.0 if constant_y else nan,
        }
    assert y2 is not None
    assert x2 is not None
    n = max(len(pairs), 1)
    slope = None if x2 == 0 else products / x2
    y_mean, x_mean = (sum((Fraction(pair[at]) for pair in pairs), Fraction(0)) / n for at in (0, 1))
    return {
        "corr": None if 0 in (x2, y2) else as_double(products) / (sqrt(y2) * sqrt(x2)),
        "slope": None if slope is None else as_double(slope),
        "intercept": None if slope is None else as_double(y_mean - slope * x_mean),
        "r2": None if x2 == 0 else 1.0 if y2 == 0 else as_double(products**2 / (x2 * y2)),
    }


def root(value: float | None) -> float | None:
    return None if value is None else sqrt(value)


def mean(values: list[float]) -> float | None:
    whole = total(values)
    return None if whole is None else whole / len(values)


def kinds(values: list[Any]) -> int:
    return len({"nan" if isinstance(value, float) and isnan(value) else value for value in values})


def expected(rows: list[Row]) -> Row:
    i, f, g, d, b = ([row[name] for row in rows if row[name] is not None] for name in "ifgdb")
    return {
        "rows": len(rows),
        "f_sum": total(f),
        "f_avg": mean(f),
        "g_sum": total(g),
        "f_var": variance(f),
        "g_std": root(variance(g)),
        "i_std": root(variance([float(value) for value in i])),
        "d_var": variance([float(value) for value in d]),
        "g_pop_var": variance(g, 0),
        "i_pop_std": root(variance([float(value) for value in i], 0)),
        "fi_pop_cov": covariance(rows, "f", "i", 0),
        "gi_cov": covariance(rows, "g", "i", 1),
        "gi_corr": line(rows, "g", "i")["corr"],
        "gd_slope": line(rows, "g", "d")["slope"],
        "gd_intercept": line(rows, "g", "d")["intercept"],
        "gi_r2": line(rows, "g", "i")["r2"],
        "b_true": sum(row["b"] is True for row in rows),
        "b_all": all(b) if b else None,
        "b_any": any(b) if b else None,
        "f_kinds": kinds(f),
        "g_kinds": kinds(g),
        "i_kinds": kinds(i),
        "d_kinds": kinds(d),
    }


def agree(found: Iterable[Row], rows: list[Row]) -> None:
    by_key = defaultdict[str | None, list[Row]](list)
    for row in rows:
        by_key[row["k"]].append(row)
    table = {row["k"]: row for row in found}
    assert table.keys() == by_key.keys()
    for key, row in table.items():
        for name, wanted in expected(by_key[key]).items():
            if isinstance(wanted, float) and not name.endswith("_sum"):
                rounding = 1e-9 if name.endswith("_intercept") else 0
                assert row[name] == pytest.approx(wanted, rel=1e-13, abs=rounding, nan_ok=True), (key, name)
            else:
                assert repr(row[name]) == repr(wanted), (key, name)


@examples(8, 3)
@given(histories(ROWS), SIZES, st.sampled_from([1, 1000]), MEMORY, RANDOMS)
def test_an_aggregate_is_over_the_rows_that_are_left(
    epochs: list[list[tuple[str, int, Row]]], size: int, distinct: int, memory_bytes: int, random: Random
) -> None:
    operator = RunningAggregate.build(("k",), AGGREGATES, InputSpec((), SCHEMA.append(KIND)), updating=True)
    one = Stream.on_engine(operator, 0, distinct, [SHARDS], memory_bytes)
    bag, table = Bag(SCHEMA), list[Row]()
    for steps in epochs:
        table = replayed(table, one.epoch(*bag.epoch(steps, size, random)))
        assert in_any_order(table) == in_any_order(one.table())
        agree(table, bag.rows)
    one.epoch(*bag.epoch([("delete", 0, row) for row in list(bag.rows)], size, random))
    assert one.table() == []
    assert set(one.held().values()) == {0}, "nothing is left of values that came and went"
