"""Functions over a partition, row by row."""

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import pyarrow as pa

from dagster_ckpt.operators.over import Function, Over
from dagster_ckpt.operators.shared.ranked.order_by import OrderColumn
from tests.unit.operators.keyed_streams import Row


def exact_sum(values: Sequence[Any]) -> Any:
    if isinstance(values[0], float):
        if any(math.isnan(value) for value in values):
            return math.nan
        return float(sum(map(Fraction, values)))
    return sum(values)


def mean(values: Sequence[Any]) -> Any:
    if isinstance(values[0], float):
        return exact_sum(values) / len(values)
    if isinstance(values[0], int):
        return float(sum(values)) / len(values)
    scaled = Fraction(sum(values)) / len(values) * 10**6
    whole = math.floor(abs(scaled) + Fraction(1, 2)) * (1 if scaled >= 0 else -1)
    return pa.scalar(whole, pa.decimal128(20, 0)).as_py().scaleb(-6)


def comparable(value: Any) -> Any:
    return (math.isnan(value), 0.0 if math.isnan(value) else value) if isinstance(value, float) else value


AGGREGATES: Mapping[Function, Callable[[Sequence[Any]], Any]] = {
    Function.SUM: exact_sum,
    Function.AVG: mean,
    Function.MIN: lambda values: min(values, key=comparable),
    Function.MAX: lambda values: max(values, key=comparable),
}


RANKINGS: Mapping[Function, Callable[[int, Sequence[Any], int], Any]] = {
    Function.ROW_NUMBER: lambda place, peer, n: place + 1,
    Function.RANK: lambda place, peer, n: peer.index(peer[place]) + 1,
    Function.DENSE_RANK: lambda place, peer, n: 1 + sum(peer[at] != peer[at - 1] for at in range(1, place + 1)),
    Function.PERCENT_RANK: lambda place, peer, n: peer.index(peer[place]) / (len(peer) - 1) if len(peer) > 1 else 0.0,
    Function.CUME_DIST: lambda place, peer, n: (last_peer(place, peer) + 1) / len(peer),
    Function.NTILE: lambda place, peer, n: next(
        bucket for bucket in range(1, n + 1) if place < bucket * (len(peer) // n) + min(bucket, len(peer) % n)
    ),
}


def last_peer(place: int, peer: Sequence[Any]) -> int:
    return max(at for at, other in enumerate(peer) if other == peer[place])


def frame_of(place: int, peer: Sequence[Any], one: Over, values: Sequence[Any], sign: int) -> range:
    """The places of the row's frame. `values` are those of the order's only column; `sign` is -1 if it descends."""
    count = len(peer)
    if one.rows is not None:
        first, last = one.rows
        start, stop = 0 if first is None else place + first, count if last is None else place + last + 1
    else:
        first, last = one.range or (None, 0)
        starts, stops = peer.index(peer[place]), last_peer(place, peer) + 1
        if values and values[place] is not None:
            known = [at for at, value in enumerate(values) if value is not None]
            far = {at: sign * (values[at] - values[place]) for at in known}
            if first:
                starts = next((at for at in known if far[at] >= first), known[-1] + 1)
            if last:
                stops = next((at for at in reversed(known) if far[at] <= last), known[0] - 1) + 1
        start, stop = 0 if first is None else starts, count if last is None else stops
    return range(max(start, 0), min(max(stop, 0), count))


def session_start(starts: Sequence[Any], ends: Sequence[Any], place: int) -> Any:
    """Where the session begins of the row at this place. Rows are in the order of their starts."""
    found, ended = None, None
    for start, end in list(zip(starts, ends, strict=True))[: place + 1]:
        if start is None:
            continue
        if ended is None or start > ended:
            found = start
        ended = max(each for each in (start, end, ended) if each is not None)
    return None if starts[place] is None else found


def computed(rows: Sequence[Row], place: int, peer: Sequence[Any], one: Over, by: Sequence[OrderColumn] = ()) -> Any:
    """The function of the row at this place in its partition. `peer` is what rows are compared by.

    `by` is the order, for functions that measure its values.
    """
    if one.function in RANKINGS:
        return RANKINGS[one.function](place, peer, one.n or 0)
    if one.function in (Function.LAG, Function.LEAD):
        other = place + (one.n or 0) * (1 if one.function is Function.LEAD else -1)
        return rows[other][str(one.column)] if 0 <= other < len(rows) else one.default
    if one.function is Function.SESSION_START:
        return session_start([row[by[0].name] for row in rows], [row[str(one.column)] for row in rows], place)
    measured = [row[by[0].name] for row in rows] if by else []
    return computed_of(rows, frame_of(place, peer, one, measured, -1 if by and by[0].descending else 1), one)


def computed_of(rows: Sequence[Row], frame: range, one: Over) -> Any:
    """The function of the rows at these places."""
    if one.column is None:
        return len(frame)
    values = [rows[at][one.column] for at in frame]
    if one.function in (Function.FIRST_VALUE, Function.LAST_VALUE, Function.NTH_VALUE):
        at = {Function.FIRST_VALUE: 0, Function.LAST_VALUE: len(values) - 1}.get(one.function, (one.n or 0) - 1)
        return values[at] if 0 <= at < len(values) else None
    values = [value for value in values if value is not None]
    if one.function is Function.COUNT:
        return len(values)
    found = AGGREGATES[one.function](values) if values else None
    return found + 0.0 if isinstance(found, float) else found
