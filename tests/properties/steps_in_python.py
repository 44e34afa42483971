"""What each operator makes of all rows so far, in loops over lists. Values compare as in `row_order` and SQL."""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from dagster_ckpt.operators.agg import Aggregation
from dagster_ckpt.operators.over import Over
from dagster_ckpt.operators.rows.top import Best
from dagster_ckpt.operators.shared.ranked.order_by import OrderColumn
from dagster_ckpt.operators.shared.window_kinds import FixedWindow, Hopping
from tests.properties.aggregates_in_python import alike, exact, ordered, value_of
from tests.properties.over_in_python import computed
from tests.unit.operators.keyed_streams import Row

Keys = Sequence[str]
EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001  (times without a zone: one with a zone has many spellings)


def by_key(rows: Sequence[Row], keys: Keys) -> list[list[Row]]:
    groups = defaultdict[str, list[Row]](list)
    for row in rows:
        groups[exact([row[key] for key in keys])].append(row)
    return list(groups.values())


def aggregate(rows: Sequence[Row], keys: Keys, functions: Mapping[str, Aggregation]) -> list[Row]:
    return [
        {**{key: group[0][key] for key in keys}, **{name: value_of(one, group) for name, one in functions.items()}}
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
    return replace(one, by=at) if one.by is None and one.function in ("first", "last") else one


def _total_order(value: Any) -> tuple[Any, ...]:
    """The order that tells all rows apart: -0.0 is below 0.0, null the greatest."""
    if isinstance(value, float):
        return (0, *ordered(value)[1], math.copysign(1, value) if value == 0 else 0)
    return (0, value) if value is not None else (1,)


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
    return (1, ordered(value)[1])


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
