"""What each function of a partition returns for each row, and what it has to know of the rows before a run."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dagster_ckpt.lsm.columns import Mask, Positions, concat, take_array
from dagster_ckpt.operators.aggregates.functions import results
from dagster_ckpt.operators.aggregates.kinds.sums import decimal_total_type
from dagster_ckpt.operators.over import Function, Over
from dagster_ckpt.operators.rows.over import exact_totals
from dagster_ckpt.operators.rows.over.elements import DENSE, NONE, RANK, ROWS, Elements
from dagster_ckpt.operators.rows.over.exact_totals import PrefixTotals
from dagster_ckpt.operators.shared.arrays.exact_numbers import EXACT, Doubles, Parts
from dagster_ckpt.operators.shared.arrays.nulls import has_value, or_null
from dagster_ckpt.operators.shared.arrays.value_order import order_column

AGGREGATES = (Function.COUNT, Function.SUM, Function.MIN, Function.MAX, Function.AVG)
PLACED = (Function.FIRST_VALUE, Function.LAST_VALUE, Function.NTH_VALUE)
_RANKS = (Function.ROW_NUMBER, Function.RANK, Function.DENSE_RANK, Function.NTILE)
_SHARES = (Function.PERCENT_RANK, Function.CUME_DIST)
_TYPES: Mapping[Function, pa.DataType] = {
    **dict.fromkeys(_RANKS, pa.int32()),
    **dict.fromkeys(_SHARES, pa.float64()),
    Function.COUNT: pa.int64(),
}
_RANKINGS: Mapping[Function, Callable[[Elements], Positions]] = {
    Function.ROW_NUMBER: lambda each: each.before + 1,
    Function.RANK: lambda each: each.rank,
    Function.DENSE_RANK: lambda each: each.dense_rank,
}


@dataclass(frozen=True)
class Sessions:
    """For each element the start of its session, that of the session before it, and the greatest end before it."""

    own: pa.Array
    start_before: pa.Array
    end_before: pa.Array


def sessions_of(rows: Elements, ends: str, carried_starts: pa.Array, carried_ends: pa.Array) -> Sessions:
    """The sessions of rows that begin at the first column of their order, and end at `ends`.

    An end that is null, or before the row's start, is the start; a row without a start is in no session. What is
    carried is the last two of `Sessions` for the first element of each run in the middle; null elsewhere.
    """
    starts, count = rows.column(rows.by[0].name), len(rows.copies)
    every = concat([starts, rows.column(ends), carried_starts, carried_ends])
    there = has_value(every)
    if not there.any():
        nothing = pa.nulls(len(rows.at), starts.type)
        return Sessions(nothing, nothing, nothing)
    order = order_column(take_array(every, np.flatnonzero(there)))
    distinct, inverse = np.unique(order.codes, return_inverse=True)
    codes = np.full(len(every), NONE, dtype=np.int64)
    codes[there] = inverse
    start = codes[:count][rows.at]
    end = np.where(start == NONE, NONE, np.maximum(start, codes[count : 2 * count][rows.at]))
    start_of_run, end_of_run = (each[rows.run] for each in np.split(codes[2 * count :], 2))
    # An end of an earlier session is before all starts of a later one: the greatest of all rows before will do.
    wide = rows.run * (len(distinct) + 1)
    upto = np.maximum(np.maximum.accumulate(end + wide) - wide, end_of_run)
    is_first = rows.places == rows.starts
    end_before = np.where(is_first, end_of_run, np.roll(upto, 1))
    opens = (start != NONE) & ((start > end_before) | (end_before == NONE))
    opened = np.maximum.accumulate(np.where(opens, rows.places, NONE))
    newest = np.where(opened >= rows.starts, start[opened], start_of_run)
    start_before = np.where(is_first, start_of_run, np.roll(newest, 1))
    own = np.where(start == NONE, NONE, newest)
    return Sessions(*(or_null(order.values(distinct[np.maximum(each, 0)]), each != NONE) for each in (
        own, start_before, end_before
    )))  # fmt: skip


def _total_type(type_: pa.DataType) -> pa.DataType:
    if pa.types.is_decimal(type_):
        return decimal_total_type(type_)
    return pa.float64() if pa.types.is_floating(type_) else pa.int64()


def _mean_type(type_: pa.DataType) -> pa.DataType:
    return results.decimal_mean_type(type_) if pa.types.is_decimal(type_) else pa.float64()


_TYPES_OF: Mapping[Function, Callable[[pa.DataType], pa.DataType]] = {
    Function.SUM: _total_type,
    Function.AVG: _mean_type,
}


@dataclass(frozen=True)
class Value:
    """One function of rows with a column of this type (None: it takes none). `carries`: runs begin in the middle."""

    name: str
    function: Over
    type: pa.DataType | None
    number: int
    carries: bool

    @property
    def output(self) -> pa.Field:
        """Its column."""
        kind = self.function.function
        fixed = _TYPES.get(kind)
        if fixed is not None:
            return pa.field(self.name, fixed, nullable=False)
        assert self.type is not None, "checked"
        return pa.field(self.name, _TYPES_OF[kind](self.type) if kind in _TYPES_OF else self.type)

    @property
    def fields(self) -> tuple[pa.Field, ...]:
        """What is kept beside each row, of all rows before it."""
        kind = self.function.function
        if not self.carries:
            return ()
        if kind in (Function.RANK, Function.DENSE_RANK):
            return (pa.field(RANK if kind is Function.RANK else DENSE, pa.int64()),)
        if kind is Function.SESSION_START:
            return (pa.field(self._value_name, self.type), pa.field(self._end_name, self.type))
        if not self._is_running or kind is Function.LAST_VALUE:
            return ()
        count, total = pa.field(self._count_name, pa.int64()), pa.field(self._value_name, EXACT)
        of_kind = {Function.COUNT: (count,), Function.SUM: (count, total), Function.AVG: (count, total)}
        return of_kind[kind] if kind in of_kind else (pa.field(self._value_name, self.type),)

    @property
    def _is_running(self) -> bool:
        """Whether its frame begins with the partition."""
        first, _ = self.function.rows or self.function.range or (None, 0)
        return self.function.function in (*AGGREGATES, *PLACED) and first is None

    @property
    def _value_name(self) -> str:
        return f"_value_{self.number}"

    @property
    def _count_name(self) -> str:
        return f"_count_{self.number}"

    @property
    def _end_name(self) -> str:
        return f"_end_{self.number}"

    def of(self, rows: Elements) -> pa.Array:
        """Its value of each element."""
        kind, column = self.function.function, self.function.column
        if kind in (*_RANKS, *_SHARES):
            return pa.array(self._ranking(rows), self.output.type)
        if kind is Function.SESSION_START:
            return self._sessions(rows).own
        starts, stops = rows.frame(self.function)
        if kind is Function.COUNT:
            return pa.array(self._count(rows, starts, stops))
        assert column is not None, "checked"
        if kind in (Function.SUM, Function.AVG):
            totals = self._total(rows, column, starts, stops)
            return self._of_total(totals, pa.array(self._count(rows, starts, stops)))
        if kind in (Function.MIN, Function.MAX):
            return self._extreme(rows, column, starts, stops)
        return self._take_placed(rows, column, starts, stops) if kind in PLACED else self._beside(rows, column)

    def state_columns(self, rows: Elements, at: Positions) -> Iterator[pa.Array]:
        """The columns `fields` for the elements at these places."""
        kind, column = self.function.function, self.function.column
        starts = rows.starts
        if kind is Function.SESSION_START and self.fields:
            sessions = self._sessions(rows)
            yield from (take_array(sessions.start_before, at), take_array(sessions.end_before, at))
            return
        for field in self.fields:
            if field.name in (RANK, DENSE):
                yield pa.array((rows.rank if kind is Function.RANK else rows.dense_rank)[at])
            elif field.name == self._count_name:
                yield pa.array(self._count(rows, starts, rows.places)[at])
            elif kind in (Function.SUM, Function.AVG):
                assert column is not None, "checked"
                yield exact_totals.only(self._total(rows, column, starts, rows.places), at).totals()
            elif kind in (Function.MIN, Function.MAX):
                assert column is not None, "checked"
                yield take_array(self._extreme(rows, column, starts, rows.places), at)
            else:
                assert column is not None, "checked"
                yield take_array(self._take_placed(rows, column, starts, rows.places), at)

    def _ranking(self, rows: Elements) -> Positions | Doubles:
        kind, count, place = self.function.function, rows.stops - rows.starts, rows.places - rows.starts
        if kind in _RANKINGS:
            return _RANKINGS[kind](rows)
        if kind in _SHARES:
            is_rank = kind is Function.PERCENT_RANK
            shares: Doubles = (
                (rows.rank - 1) / np.maximum(count - 1, 1) if is_rank else (rows.peers[1] - rows.starts) / count
            )
            return shares
        assert self.function.n is not None, "checked"
        size, larger = count // self.function.n, count % self.function.n
        in_larger = larger * (size + 1)
        behind: Positions = larger + (place - in_larger) // np.maximum(size, 1)
        buckets: Positions = np.where(place < in_larger, place // (size + 1), behind) + 1
        return buckets

    def _sessions(self, rows: Elements) -> Sessions:
        assert self.function.column is not None, "checked"
        nothing = pa.nulls(len(rows.in_middle), self.type)
        before = [rows.carried.get(name, nothing) for name in (self._value_name, self._end_name)]
        return sessions_of(rows, self.function.column, *before)

    def _beside(self, rows: Elements, column: str) -> pa.Array:
        """The value so many rows before or behind."""
        kind, n, default = self.function.function, self.function.n, self.function.default
        assert n is not None, "checked"
        places = rows.places + (n if kind is Function.LEAD else -n)
        places[(places < rows.starts) | (places >= rows.stops)] = NONE
        return rows.values(column, places, None if default is None else pa.scalar(default, self.type))

    def _count(self, rows: Elements, starts: Positions, stops: Positions) -> Positions:
        column = self.function.column
        there = np.ones(len(rows.copies), dtype=np.bool_) if column is None else has_value(rows.column(column))
        before = np.append(0, np.cumsum(there[rows.at]))
        counts: Positions = before[stops] - before[starts]
        return counts + rows.carry(self._count_name) if self._is_running else counts

    def _total(self, rows: Elements, column: str, starts: Positions, stops: Positions) -> Parts:
        totals = PrefixTotals.of(rows.column(column), rows.at).between(starts, stops)
        if self._value_name not in rows.carried or not self._is_running:
            return totals
        carried = Parts.of_totals(rows.carried[self._value_name])
        return totals.plus(exact_totals.only(carried, rows.run))

    def _of_total(self, totals: Parts, n: pa.Array) -> pa.Array:
        is_sum = self.function.function is Function.SUM
        assert self.type is not None, "checked"
        if pa.types.is_decimal(self.type):
            type_ = _total_type(self.type)
            try:
                total = exact_totals.as_decimals(totals, type_.scale).cast(type_)
            except pa.ArrowInvalid as error:
                raise self._does_not_fit(type_) from error
            if is_sum:
                return results.null_if_none(total, n)
            return results.decimal_mean(total, n, self.output.type)
        if is_sum and not pa.types.is_floating(self.type):
            numbers, fit = exact_totals.as_integers(totals)
            if not fit.all():
                raise self._does_not_fit("bigint")
            return results.null_if_none(pa.array(numbers), n)
        doubles = pa.array(exact_totals.as_doubles(totals, of_floats=pa.types.is_floating(self.type)))
        return results.null_if_none(doubles, n) if is_sum else results.mean(doubles, n)

    def _does_not_fit(self, type_: object) -> OverflowError:
        return OverflowError(
            f"a total outgrew its type: cast the column to a wider decimal or to double before it is summed. "
            f"column={self.function.column}, function={self.name}, type={type_}"
        )

    def _extreme(self, rows: Elements, column: str, starts: Positions, stops: Positions) -> pa.Array:
        values = rows.column(column)
        is_max = self.function.function is Function.MAX
        carried = (
            rows.carried[self._value_name]
            if self._is_running and self._value_name in rows.carried
            else values.slice(0, 0)
        )
        both = concat([values, carried])
        there = has_value(both)
        if not there.any():
            return pa.nulls(len(rows.at), values.type)
        order = order_column(take_array(both, np.flatnonzero(there)))
        distinct, inverse = np.unique(order.codes, return_inverse=True)
        # From 1, the best the greatest; 0: no value.
        codes = np.zeros(len(both), dtype=np.int64)
        codes[there] = inverse + 1 if is_max else len(distinct) - inverse
        found = _greatest(codes[: len(values)][rows.at], rows, starts, stops)
        if len(carried):
            found = np.maximum(found, np.where(rows.in_middle, codes[len(values) :], 0)[rows.run])
        at = np.where(found > 0, found - 1 if is_max else len(distinct) - found, 0)
        return or_null(order.values(distinct[at]), found > 0)

    def _take_placed(self, rows: Elements, column: str, starts: Positions, stops: Positions) -> pa.Array:
        kind = self.function.function
        if kind is Function.LAST_VALUE:
            return rows.values(column, np.where(stops > starts, stops - 1, NONE))
        n = self.function.n if kind is Function.NTH_VALUE else 1
        assert n is not None, "checked"
        earlier = rows.carry(ROWS) if self._is_running else np.zeros(len(starts), dtype=np.int64)
        places = starts + n - 1 - earlier
        found = rows.values(column, np.where((places >= starts) & (places < stops), places, NONE))
        if not self._is_running or self._value_name not in rows.carried:
            return found
        is_carried = earlier >= n
        both = concat([found, rows.carried[self._value_name]])
        return take_array(both, np.where(is_carried, len(found) + rows.run, np.arange(len(found))))


def _greatest(codes: Positions, rows: Elements, starts: Positions, stops: Positions) -> Positions:
    """The greatest code from each start to each stop, within a run; 0 if there is none."""
    lengths = stops - starts
    some: Mask = lengths > 0
    found = np.zeros(len(codes), dtype=np.int64)
    if not some.any():
        return found
    wide = int(codes.max()) + 1
    if (starts == rows.starts).all():
        running = np.maximum.accumulate(codes + rows.run * wide) - rows.run * wide
        found[some] = running[stops[some] - 1]
        return found
    if (stops == rows.stops).all():
        back = (rows.run.max(initial=0) - rows.run) * wide
        running = (np.maximum.accumulate((codes + back)[::-1])[::-1]) - back
        found[some] = running[starts[some]]
        return found
    # The greatest of 2**level codes from each place on; two of these cover any frame.
    level_of = np.zeros(len(codes), dtype=np.int64)
    level_of[some] = np.frexp(lengths[some].astype(np.float64))[1] - 1
    reach = codes
    for level in range(int(level_of.max()) + 1):
        at = np.flatnonzero(some & (level_of == level))
        found[at] = np.maximum(reach[starts[at]], reach[stops[at] - (1 << level)])
        step = 1 << level
        reach = np.append(np.maximum(reach[:-step], reach[step:]), reach[len(reach) - min(step, len(reach)) :])
    return found
