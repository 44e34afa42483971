"""What each aggregate makes of rows, in loops over lists. Values compare as in `row_order` and SQL."""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from operator import and_, or_, xor
from typing import Any

import pyarrow as pa

from dagster_ckpt.operators.agg import Aggregation
from tests.unit.operators.keyed_streams import Row

Oracle = Callable[[Aggregation, Sequence[Row]], Any]
INEXACT = ("variance", "stddev_pop")
"""Results that loops over fractions give to about 15 digits."""


def alike(value: Any) -> Any:
    """One zero."""
    return value + 0.0 if isinstance(value, float) else value


def exact(value: Any) -> str:
    """NaN is like NaN, -0.0 is not like 0.0, and True is not 1."""
    return repr(value)


def value_of(one: Aggregation, rows: Sequence[Row]) -> Any:
    """What the aggregate is of these rows."""
    return ORACLES[one.function](one, rows)


def _of_values(function: Callable[[list[Any]], Any]) -> Oracle:
    """Of the values that are not null."""

    def of(one: Aggregation, rows: Sequence[Row]) -> Any:
        assert one.column is not None
        return function([row[one.column] for row in rows if row[one.column] is not None])

    return of


def _of_some(function: Callable[[list[Any]], Any]) -> Oracle:
    """The same, and null without a value."""
    return _of_values(lambda values: function(values) if values else None)


def _count(one: Aggregation, rows: Sequence[Row]) -> int:
    return len(rows) if one.column is None else sum(row[one.column] is not None for row in rows)


def _value_by(one: Aggregation, rows: Sequence[Row]) -> Any:
    if one.columns is not None:
        found = _rows_by(one, rows, last=one.function == "last")
        return found[0] if found else None
    assert one.by is not None
    assert one.column is not None
    known = [row for row in rows if row[one.by] is not None and row[one.column] is not None]
    best = min if one.function == "first" else max
    pairs = [(ordered(row[one.by]), ordered(row[one.column])) for row in known]
    return alike(best(pairs)[1][-1]) if pairs else None


def _rows_by(one: Aggregation, rows: Sequence[Row], *, last: bool = False) -> list[Row]:
    """The columns of the rows with a `by`, in their order from the front or from the end; null loses at either."""
    columns, by = one.columns, one.by
    assert columns is not None
    assert by is not None
    known = [row for row in rows if row[by] is not None]
    for name in reversed([by, *columns]):
        valued = [row for row in known if row[name] is not None]
        valued.sort(key=lambda row: ordered(row[name]), reverse=last)
        known = [*valued, *(row for row in known if row[name] is None)]
    return [{name: alike(row[name]) for name in columns} for row in known]


def _collected(one: Aggregation, rows: Sequence[Row]) -> list[Any]:
    if one.columns is not None:
        return _rows_by(one, rows)[: one.limit]
    assert one.by is not None
    assert one.column is not None
    pairs = [(row[one.by], row[one.column]) for row in rows]
    known = [(by, value) for by, value in pairs if by is not None and value is not None]
    known.sort(key=lambda pair: (ordered(pair[0]), ordered(pair[1])))
    return [alike(value) for _, value in known[: one.limit]]


def _percentile(one: Aggregation, rows: Sequence[Row]) -> Any:
    q = one.q
    assert q is not None
    return _of_some(lambda values: percentile(values, q))(one, rows)


def _percentile_disc(one: Aggregation, rows: Sequence[Row]) -> Any:
    q = one.q
    assert q is not None
    return _of_some(lambda values: _ascending(values)[max(math.ceil(q * len(values)), 1) - 1])(one, rows)


def _ascending(values: Sequence[Any]) -> list[Any]:
    return sorted(map(alike, values), key=ordered)


def _mode(values: Sequence[Any]) -> Any:
    ordered = _ascending(values)
    often = Counter(map(exact, ordered))
    return max(ordered, key=lambda value: often[exact(value)])  # the first of several


def _digest(one: Aggregation, rows: Sequence[Row]) -> str:
    assert one.columns is not None
    return digest([tuple(row[name] for name in one.columns) for row in rows])


def digest(rows: Sequence[tuple[Any, ...]]) -> str:
    """A text that says all of a bag of rows."""
    return ";".join(sorted(exact([alike(value) for value in row]) for row in rows))


def digests(rows: pa.Table) -> pa.Array:
    """`digest` as a user-defined aggregate."""
    groups = defaultdict[int, list[tuple[Any, ...]]](list)
    for number, *values in zip(*(column.to_pylist() for column in rows.columns), strict=True):
        groups[number].append(tuple(values))
    assert list(groups) == list(range(len(groups))), "numbers ascend, and none is left out"
    return pa.array([digest(its) for its in groups.values()], pa.string())


def _total(values: Sequence[Any]) -> Any:
    """Rounded once."""
    if not isinstance(values[0], float):
        return sum(values)
    special = [value for value in values if not math.isfinite(value)]
    return sum(special) if special else float(sum(map(Fraction, values), Fraction(0)))


def _variance(values: Sequence[float], ddof: int) -> float:
    if not all(map(math.isfinite, values)):
        return math.nan
    mean = sum(map(Fraction, values), Fraction(0)) / len(values)
    return float(sum(((value - mean) ** 2 for value in map(Fraction, values)), Fraction(0)) / (len(values) - ddof))


def ordered(value: Any) -> tuple[Any, ...]:
    """The order of an aggregate and of ORDER BY: NaN is the greatest, -0.0 equals 0.0. Ends in the value."""
    if value is None:
        return (1, None)
    if isinstance(value, float):
        return (0, (True, 0.0), math.nan) if math.isnan(value) else (0, (False, value + 0.0), value + 0.0)
    return (0, value)


def percentile(values: Sequence[Any], q: float) -> float:
    """Spark's."""
    found = sorted(map(alike, values), key=ordered)
    place = q * (len(found) - 1)
    lower, upper = math.floor(place), math.ceil(place)
    low, high = float(found[lower]), float(found[upper])
    return low if lower == upper or low == high else (upper - place) * low + (place - lower) * high


def _distinct(values: Sequence[Any]) -> list[Any]:
    return list({exact(alike(value)): alike(value) for value in values}.values())


def _spread(ddof: int, result: Callable[[float], float] = float) -> Oracle:
    return _of_values(lambda values: None if len(values) <= ddof else result(_variance(values, ddof)))


def _standardized(power: int, less: float) -> Oracle:
    """A moment around the mean, by the deviation to its power; null where all values are the same."""

    def of(values: list[Any]) -> float | None:
        mean = Fraction(sum(map(Fraction, values)), len(values))
        second, other = (
            float(sum((value - mean) ** each for value in map(Fraction, values)) / len(values)) for each in (2, power)
        )
        return other / second ** (power / 2) - less if second else None

    return _of_some(of)


@dataclass(frozen=True)
class _Pairs:
    """The rows that have both y and x: their number, and sums of products of distances from the means."""

    n: int
    y: Fraction
    x: Fraction
    yy: Fraction
    xx: Fraction
    yx: Fraction


def _of_pairs(function: Callable[[_Pairs], Fraction | float | None], rows_min: int = 1) -> Oracle:
    def of(one: Aggregation, rows: Sequence[Row]) -> float | None:
        assert one.column is not None
        assert one.other is not None
        both = [(row[one.column], row[one.other]) for row in rows]
        pairs = [(Fraction(y), Fraction(x)) for y, x in both if y is not None and x is not None]
        n = len(pairs)
        if n < rows_min:
            return None
        y, x = (sum(each) / n for each in zip(*pairs, strict=True))
        apart = [(each[0] - y, each[1] - x) for each in pairs]
        sums = (sum(each[a] * each[b] for each in apart) for a, b in ((0, 0), (1, 1), (0, 1)))
        found = function(_Pairs(n, y, x, *map(Fraction, sums)))
        return None if found is None else float(found)

    return of


def _corr(pairs: _Pairs) -> float | None:
    return float(pairs.yx) / math.sqrt(pairs.yy * pairs.xx) if pairs.yy * pairs.xx else None


def _r2(pairs: _Pairs) -> Fraction | float | None:
    return None if not pairs.xx else 1.0 if not pairs.yy else pairs.yx**2 / (pairs.yy * pairs.xx)


ORACLES: Mapping[str, Oracle] = {
    "count": _count,
    "count_if": _of_values(sum),
    "bool_and": _of_some(all),
    "bool_or": _of_some(any),
    "sum": _of_some(_total),
    "avg": _of_some(lambda values: _total(values) / len(values)),
    "min": _of_some(lambda values: alike(min(map(ordered, values))[-1])),
    "max": _of_some(lambda values: alike(max(map(ordered, values))[-1])),
    "first": _value_by,
    "last": _value_by,
    "stddev": _spread(1, math.sqrt),
    "variance": _spread(1),
    "stddev_pop": _spread(0, math.sqrt),
    "var_pop": _spread(0),
    "corr": _of_pairs(_corr, 2),
    "covar_pop": _of_pairs(lambda pairs: pairs.yx / pairs.n),
    "covar_samp": _of_pairs(lambda pairs: pairs.yx / (pairs.n - 1), 2),
    "regr_slope": _of_pairs(lambda pairs: pairs.yx / pairs.xx if pairs.xx else None),
    "regr_intercept": _of_pairs(lambda pairs: pairs.y - pairs.yx / pairs.xx * pairs.x if pairs.xx else None),
    "regr_r2": _of_pairs(_r2),
    "count_distinct": _of_values(lambda values: len(_distinct(values))),
    "sum_distinct": _of_some(lambda values: _total(_distinct(values))),
    "avg_distinct": _of_some(lambda values: _total(_distinct(values)) / len(_distinct(values))),
    "bit_and": _of_some(lambda values: reduce(and_, values)),
    "bit_or": _of_some(lambda values: reduce(or_, values)),
    "bit_xor": _of_some(lambda values: reduce(xor, values)),
    "percentile": _percentile,
    "median": _of_some(lambda values: percentile(values, 0.5)),
    "percentile_disc": _percentile_disc,
    "mode": _of_some(_mode),
    "skewness": _standardized(3, 0),
    "kurtosis": _standardized(4, 3),
    "collect_list": _of_values(_ascending),
    "collect_set": _of_values(lambda values: _ascending(_distinct(values))),
    "user_defined": _digest,
    "collect": _collected,
}
"""What each function is of rows, by its name."""
