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
    [("k", pa.string()), ("i", pa.int64()), ("f", pa.float64()), ("g", pa.float32()), ("d", pa.decimal128(20, 2))]
)
FLOATS = st.floats(-1e6, 1e6) | st.sampled_from([nan, inf, -inf, 0.0, -0.0, 0.1, 1e300, -1e300, 1.5e308, 5e-324, None])
ROWS = st.fixed_dictionaries(
    {
        "k": st.sampled_from(["a", "b", None]),
        "i": st.integers(-(2**53), 2**53) | st.sampled_from([0, 1, None]),
        "f": FLOATS,
        "g": st.sampled_from([nan, inf, 0.5, -0.25, -0.0, 0.0, 1.5, None]),
        "d": st.integers(-(10**19), 10**19).map(lambda cents: cents * Decimal("0.01")) | st.none(),
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


def variance(values: list[float]) -> float | None:
    if len(values) < 2:
        return None
    if any(isnan(value) or isinf(value) for value in values):
        return nan
    exact = list(map(Fraction, values))
    mean = sum(exact, Fraction(0)) / len(exact)
    return as_double(sum(((value - mean) ** 2 for value in exact), Fraction(0)) / (len(exact) - 1))


def root(value: float | None) -> float | None:
    return None if value is None else sqrt(value)


def mean(values: list[float]) -> float | None:
    whole = total(values)
    return None if whole is None else whole / len(values)


def kinds(values: list[Any]) -> int:
    return len({"nan" if isinstance(value, float) and isnan(value) else value for value in values})


def expected(rows: list[Row]) -> Row:
    i, f, g, d = ([row[name] for row in rows if row[name] is not None] for name in "ifgd")
    return {
        "rows": len(rows),
        "f_sum": total(f),
        "f_avg": mean(f),
        "g_sum": total(g),
        "f_var": variance(f),
        "g_std": root(variance(g)),
        "i_std": root(variance([float(value) for value in i])),
        "d_var": variance([float(value) for value in d]),
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
            if name.endswith(("_var", "_std", "_avg")) and wanted is not None:
                assert row[name] == pytest.approx(wanted, rel=1e-14, abs=0, nan_ok=True), (key, name)
            else:
                assert repr(row[name]) == repr(wanted), (key, name)


@examples(15)
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
