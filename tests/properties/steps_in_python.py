"""What each operator makes of all rows so far, in loops over lists. Values compare as in `row_order` and SQL."""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from fractions import Fraction
from functools import reduce
from operator import and_, or_, xor
from typing import Any

import pyarrow as pa

from dagster_ckpt.operators.agg import Aggregation, Function
from dagster_ckpt.operators.over import Over
from dagster_ckpt.operators.rows.top.top import Best
from dagster_ckpt.operators.shared.ranked.order_by import OrderColumn
from dagster_ckpt.operators.shared.window_kinds import FixedWindow, Hopping
from tests.properties.over_in_python import computed
from tests.unit.operators.keyed_streams import Row

Keys = Sequence[str]
EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001  (times without a zone: one with a zone has many spellings)
INEXACT = (Function.VARIANCE, Function.STDDEV_POP)
"""Results that loops over fractions give to about 15 digits."""


def alike(value: Any) -> Any:
    """One zero."""
    return value + 0.0 if isinstance(value, float) else value


def exact(value: Any) -> str:
    """NaN is like NaN, -0.0 is not like 0.0, and True is not 1."""
    return repr(value)


def by_key(rows: Sequence[Row], keys: Keys) -> list[list[Row]]:
    groups = defaultdict[str, list[Row]](list)
    for row in rows:
        groups[exact([row[key] for key in keys])].append(row)
    return list(groups.values())


def aggregate(rows: Sequence[Row], keys: Keys, functions: Mapping[str, Aggregation]) -> list[Row]:
    return [
        {**{key: group[0][key] for key in keys}, **{name: _value(one, group) for name, one in functions.items()}}
        for group in by_key(rows, keys)
    ]


def windows(
    rows: Sequence[Row], keys: Keys, functions: Mapping[str, Aggregation], window: FixedWindow, at: str
) -> list[Row]:
    """With the rows of each window in all windows that have any."""
    step = timedelta(microseconds=window.slide_us if isinstance(window, Hopping) else window.size_us)
    size, offset = timedelta(microseconds=window.size_us), timedelta(microseconds=window.offset_us)
    within = list[Row]()
    for row in rows:
        start = row[at] - (row[at] - EPOCH - offset) % step
        while start > row[at] - size:
            within.append({**row, "window_start": start, "window_end": start + size})
            start -= step
    functions = {name: _in_order(one, at) for name, one in functions.items()}
    return aggregate(within, [*keys, "window_start", "window_end"], functions)


def _in_order(one: Aggregation, at: str) -> Aggregation:
    return replace(one, by=at) if one.by is None and one.function in (Function.FIRST, Function.LAST) else one


def _value(one: Aggregation, rows: Sequence[Row]) -> Any:
    if one.function in _OF_ROWS:
        return _OF_ROWS[one.function](one, rows)
    if one.column is None:
        return len(rows)
    values = [row[one.column] for row in rows if row[one.column] is not None]
    if one.function in _OF_ANY:
        return _OF_ANY[one.function](values)
    return _OF_SOME[one.function](values) if values else None


def _value_by(one: Aggregation, rows: Sequence[Row]) -> Any:
    if one.columns is not None:
        found = _rows_by(one, rows, last=one.function is Function.LAST)
        return found[0] if found else None
    assert one.by is not None
    assert one.column is not None
    known = [row for row in rows if row[one.by] is not None and row[one.column] is not None]
    best = min if one.function is Function.FIRST else max
    pairs = [(_ordered(row[one.by]), _ordered(row[one.column])) for row in known]
    return alike(best(pairs)[1][-1]) if pairs else None


def _rows_by(one: Aggregation, rows: Sequence[Row], *, last: bool = False) -> list[Row]:
    """The columns of the rows with a `by`, in their order from the front or from the end; null loses at either."""
    columns, by = one.columns, one.by
    assert columns is not None
    assert by is not None
    known = [row for row in rows if row[by] is not None]
    for name in reversed([by, *columns]):
        valued = [row for row in known if row[name] is not None]
        valued.sort(key=lambda row: _ordered(row[name]), reverse=last)
        known = [*valued, *(row for row in known if row[name] is None)]
    return [{name: alike(row[name]) for name in columns} for row in known]


def _collected(one: Aggregation, rows: Sequence[Row]) -> list[Any]:
    if one.columns is not None:
        return _rows_by(one, rows)[: one.limit]
    assert one.by is not None
    assert one.column is not None
    pairs = [(row[one.by], row[one.column]) for row in rows]
    known = [(by, value) for by, value in pairs if by is not None and value is not None]
    known.sort(key=lambda pair: (_ordered(pair[0]), _ordered(pair[1])))
    return [alike(value) for _, value in known[: one.limit]]


def _percentile(one: Aggregation, rows: Sequence[Row]) -> float | None:
    assert one.q is not None
    assert one.column is not None
    values = [row[one.column] for row in rows if row[one.column] is not None]
    return percentile(values, one.q) if values else None


def _percentile_disc(one: Aggregation, rows: Sequence[Row]) -> Any:
    assert one.q is not None
    assert one.column is not None
    values = _ascending([row[one.column] for row in rows if row[one.column] is not None])
    return values[max(math.ceil(one.q * len(values)), 1) - 1] if values else None


def _ascending(values: Sequence[Any]) -> list[Any]:
    return sorted(map(alike, values), key=_ordered)


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


def _ordered(value: Any) -> tuple[Any, ...]:
    """The order of an aggregate and of ORDER BY: NaN is the greatest, -0.0 equals 0.0. Ends in the value."""
    if value is None:
        return (1, None)
    if isinstance(value, float):
        return (0, (True, 0.0), math.nan) if math.isnan(value) else (0, (False, value + 0.0), value + 0.0)
    return (0, value)


def _total_order(value: Any) -> tuple[Any, ...]:
    """The order that tells all rows apart: -0.0 is below 0.0, null the greatest."""
    if isinstance(value, float):
        return (0, *_ordered(value)[1], math.copysign(1, value) if value == 0 else 0)
    return (0, value) if value is not None else (1,)


def percentile(values: Sequence[Any], q: float) -> float:
    """Spark's."""
    found = sorted(map(alike, values), key=_ordered)
    place = q * (len(found) - 1)
    lower, upper = math.floor(place), math.ceil(place)
    low, high = float(found[lower]), float(found[upper])
    return low if lower == upper or low == high else (upper - place) * low + (place - lower) * high


def _distinct(values: Sequence[Any]) -> list[Any]:
    return list({exact(alike(value)): alike(value) for value in values}.values())


_OF_ROWS: Mapping[Function, Callable[[Aggregation, Sequence[Row]], Any]] = {
    Function.FIRST: _value_by,
    Function.LAST: _value_by,
    Function.COLLECT: _collected,
    Function.PERCENTILE: _percentile,
    Function.PERCENTILE_DISC: _percentile_disc,
    Function.USER_DEFINED: _digest,
}
_OF_ANY: Mapping[Function, Callable[[Sequence[Any]], Any]] = {
    Function.COUNT: len,
    Function.COUNT_IF: sum,
    Function.COUNT_DISTINCT: lambda values: len({exact(alike(value)) for value in values}),
    Function.COLLECT_LIST: _ascending,
    Function.COLLECT_SET: lambda values: _ascending(_distinct(values)),
    Function.VARIANCE: lambda values: None if len(values) < 2 else _variance(values, 1),
}
_OF_SOME: Mapping[Function, Callable[[Sequence[Any]], Any]] = {
    Function.MIN: lambda values: alike(min(map(_ordered, values))[-1]),
    Function.MAX: lambda values: alike(max(map(_ordered, values))[-1]),
    Function.BOOL_AND: all,
    Function.BOOL_OR: any,
    Function.SUM: _total,
    Function.AVG: lambda values: _total(values) / len(values),
    Function.BIT_AND: lambda values: reduce(and_, values),
    Function.BIT_OR: lambda values: reduce(or_, values),
    Function.BIT_XOR: lambda values: reduce(xor, values),
    Function.MODE: _mode,
    Function.MEDIAN: lambda values: percentile(values, 0.5),
    Function.SUM_DISTINCT: lambda values: _total(_distinct(values)),
    Function.AVG_DISTINCT: lambda values: _total(_distinct(values)) / len(_distinct(values)),
    Function.STDDEV_POP: lambda values: math.sqrt(_variance(values, 0)),
}
"""What each function makes of the values that are not null; null of no such value, but where it is `_OF_ANY`."""


def top(rows: Sequence[Row], keys: Keys, best: Best, by: Sequence[OrderColumn]) -> list[Row]:
    return [row for group in by_key(rows, keys) for row in _top_of_one(group, keys, best, by)]


def _top_of_one(rows: Sequence[Row], keys: Keys, best: Best, by: Sequence[OrderColumn]) -> list[Row]:
    rows = _in_order_of(rows, keys, by)
    found = list[Row]()
    values = [[_nulls_in_order(row[column.name], column) for column in by] for row in rows]
    dense = 0
    for at, row in enumerate(rows):
        dense += at == 0 or values[at] != values[at - 1]
        place = {"rows": at + 1, "rank": values.index(values[at]) + 1, "dense_rank": dense}[best.ties]
        if place <= best.n:
            found.append(row if best.rank is None else {**row, best.rank: place})
    return found


def over(rows: Sequence[Row], keys: Keys, functions: Mapping[str, Over], by: Sequence[OrderColumn]) -> list[Row]:
    """Each row with the functions over its partition."""
    found = list[Row]()
    for group in by_key(rows, keys):
        its = _in_order_of(group, keys, by)
        peers = [[_nulls_in_order(row[column.name], column) for column in by] for row in its]
        for place, row in enumerate(its):
            values = {name: computed(its, place, peers, one) for name, one in functions.items()}
            found.append({**row, **values})
    return found


def _in_order_of(rows: Sequence[Row], keys: Keys, by: Sequence[OrderColumn]) -> list[Row]:
    """The rows of a key in an order, those that tie by their other columns."""
    others = [name for name in rows[0] if name not in keys]
    found = sorted(rows, key=lambda row: [_total_order(row[name]) for name in others])
    for column in reversed(by):
        found.sort(key=lambda row: _nulls_in_order(row[column.name], column), reverse=column.descending)
    return found


def _nulls_in_order(value: Any, column: OrderColumn) -> tuple[Any, ...]:
    if value is None:
        return (0,) if column.nulls_first != column.descending else (2,)
    return (1, _ordered(value)[1])


def one_of_each(rows: Sequence[Row], keys: Keys, keep: str, by: Keys) -> list[Row]:
    """Of rows that only come: null loses to any value at either end."""
    found = []
    for group in by_key(rows, keys):
        names = [*by, *(name for name in group[0] if name not in keys and name not in by)]
        if keep == "first":
            found.append(min(group, key=lambda row: [_total_order(row[name]) for name in names]))
        else:
            found.append(
                max(group, key=lambda row: [(row[name] is not None, _total_order(row[name])) for name in names])
            )
    return found


COUNTS: Mapping[str, Callable[[int, int], int]] = {
    "distinct": lambda left, _: min(left, 1),
    "union_all": lambda left, right: left + right,
    "intersect": lambda left, right: min(left, right, 1),
    "intersect_all": min,
    "subtract": lambda left, right: int(left > 0 and right == 0),
    "except_all": lambda left, right: max(left - right, 0),
}
"""How often a row is in the result, from how often it is in each input."""


def set_operation(kind: str, left: Sequence[Row], right: Sequence[Row]) -> list[Row]:
    rows, sides = dict[str, Row](), (Counter[str](), Counter[str]())
    for counts, its in zip(sides, (left, right), strict=True):
        for row in its:
            same = row if kind == "union_all" else {name: alike(value) for name, value in row.items()}
            rows[exact(same)] = same
            counts[exact(same)] += 1
    return [row for text, row in rows.items() for _ in range(COUNTS[kind](*(counts[text] for counts in sides)))]
