"""The least and the greatest value, and the first and the last."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dagster_ckpt.lsm.columns import Positions
from dagster_ckpt.operators.aggregates.aggregation import Aggregation
from dagster_ckpt.operators.aggregates.kinds.accumulator import Accumulator, Columns, GroupedRows, Keeps
from dagster_ckpt.operators.aggregates.kinds.edge_rows import EdgeRow
from dagster_ckpt.operators.aggregates.kinds.extremes import Extreme, furthest_codes
from dagster_ckpt.operators.aggregates.kinds.settled import BestValue
from dagster_ckpt.operators.aggregates.spec import ORDERED, AggregatePlan, AggregateSpec, Plan, Request
from dagster_ckpt.operators.shared.arrays.nulls import has_value, or_null
from dagster_ckpt.operators.shared.arrays.value_order import End, one_zero, order_column, precedes

__all__ = ["first", "last", "max", "min"]

_LEAST = ("Min", "First", "AnyValue")
_GREATEST = ("Max", "Last", "PivotFirst")
"""Which row is the first or the last of a group SQL leaves open: any value will do."""


def min(column: str, *, since: str | None = None) -> Aggregation:  # noqa: A001
    """The least value of any column that is not nested; strings compare by their bytes, False before True."""
    return Aggregation("min", column, since=since)


def max(column: str, *, since: str | None = None) -> Aggregation:  # noqa: A001
    """The greatest value of any column that is not nested; strings compare by their bytes, False before True."""
    return Aggregation("max", column, since=since)


def first(column: str | Sequence[str], by: str | None = None, *, since: str | None = None) -> Aggregation:
    """The value of the row with the least `by` (default: the event time); of several such rows the least value.

    Rows where the value or `by` is null are skipped. Several columns, as `["gate", "delay"]`, give their values in one
    row as a struct; then only a null in `by` counts, and of several such rows it is the one with the least values, in
    the order of the columns, a value before null.
    """
    return Aggregation.of_columns("first", column, by, since=since)


def last(column: str | Sequence[str], by: str | None = None, *, since: str | None = None) -> Aggregation:
    """The value of the row with the greatest `by` (default: the event time); of several such rows the greatest value.

    Rows where the value or `by` is null are skipped. Several columns as in `first`, a value before null here too.
    """
    return Aggregation.of_columns("last", column, by, since=since)


def _extreme(end: End) -> Plan:
    def plan(request: Request) -> AggregatePlan:
        extreme = Extreme(request.column, request.type, end)
        return AggregatePlan(pa.field(request.name, request.type), (extreme,), lambda state: state[extreme.name])

    return plan


def _best_extreme(end: End) -> Plan:
    """Where the next value must be known when the best one is taken back."""

    def plan(request: Request) -> AggregatePlan:
        name = Extreme(request.column, request.type, end).name
        return _best(request, BestValue(name, (request.column,), request.type, end))

    return plan


def _edge(end: End) -> Plan:
    def plan(request: Request) -> AggregatePlan:
        if request.aggregation.columns is not None:
            row = _row(request, request.aggregation.columns, end)
            return AggregatePlan(pa.field(request.name, row.type), (row,), row.result)
        edge = Edge(request.column, request.type, request.by, request.types[request.by], end)
        value, _ = edge.names
        return AggregatePlan(pa.field(request.name, edge.type), (edge,), lambda state: state[value])

    return plan


def _best_edge(end: End) -> Plan:
    def plan(request: Request) -> AggregatePlan:
        columns = request.aggregation.columns
        if columns is not None:
            row = _row(request, columns, end)
            return _best(request, BestValue(row.names[-1], (request.by, *columns), row.type, end, row=True))
        value, _ = Edge(request.column, request.type, request.by, request.types[request.by], end).names
        return _best(request, BestValue(value, (request.by, request.column), request.type, end))

    return plan


def _row(request: Request, columns: tuple[str, ...], end: End) -> EdgeRow:
    return EdgeRow(columns, tuple(request.types[name] for name in columns), request.by, request.types[request.by], end)


def _best(request: Request, best: BestValue) -> AggregatePlan:
    return AggregatePlan(pa.field(request.name, best.type), (best,), lambda state: state[best.name])


SPECS = (
    AggregateSpec(min, ORDERED, _extreme(End.LEAST), retracted=_best_extreme(End.LEAST), spark=_LEAST, idempotent=True),
    AggregateSpec(
        max, ORDERED, _extreme(End.GREATEST), retracted=_best_extreme(End.GREATEST), spark=_GREATEST, idempotent=True
    ),
    AggregateSpec(first, ORDERED, _edge(End.LEAST), retracted=_best_edge(End.LEAST), spark=("MinBy",)),
    AggregateSpec(last, ORDERED, _edge(End.GREATEST), retracted=_best_edge(End.GREATEST), spark=("MaxBy",)),
)


@dataclass(frozen=True)
class Edge(Accumulator):
    """The value of the row with the least (greatest) `by`; of several such rows the least (greatest) value.

    Rows where either is null are skipped; both state columns are null where no row is left.
    """

    column: str
    type: pa.DataType
    by: str
    by_type: pa.DataType
    end: End

    keeps: ClassVar[Keeps] = Keeps("the first or last value")

    @property
    def names(self) -> tuple[str, str]:
        """Its state columns: the value and its `by`."""
        function = "first" if self.end is End.LEAST else "last"
        pair = f"{_one_word(self.column)} by {_one_word(self.by)}"
        return f"_{function}({pair})", f"_{function}_at({pair})"

    @property
    def fields(self) -> tuple[pa.Field, ...]:
        value, by = self.names
        return pa.field(value, self.type), pa.field(by, self.by_type)

    def of_rows(self, rows: GroupedRows) -> tuple[pa.Array, ...]:
        value, by = rows.columns[self.column], rows.columns[self.by]
        usable = has_value(value) & has_value(by)
        somewhere = np.logical_or.reduceat(usable, rows.starts)
        places = order_column(by).codes
        edge = furthest_codes(places, usable, rows.starts, self.end)
        tied = np.flatnonzero(usable & (places == edge[rows.group_of_row]))
        row = np.zeros(len(rows.starts), dtype=np.int64)
        row[somewhere] = self._break_ties(tied, rows.group_of_row[tied], value)
        chosen = pa.array(row)
        return tuple(or_null(one_zero(column.take(chosen)), somewhere) for column in (value, by))

    def _break_ties(self, tied: Positions, groups: Positions, value: pa.Array) -> Positions:
        """One row of each group: of the tied rows the one with the least (greatest) value."""
        starts = np.flatnonzero(np.diff(groups, prepend=-1))
        if len(starts) == len(tied):
            return tied
        codes = order_column(value.take(pa.array(tied))).codes
        furthest = furthest_codes(codes, np.ones(len(tied), dtype=np.bool_), starts, self.end)
        settled = np.zeros(len(starts), dtype=np.int64)
        best = np.flatnonzero(codes == np.repeat(furthest, np.diff(starts, append=len(tied))))
        # Rows that are equal in both columns are interchangeable.
        settled[np.searchsorted(groups[starts], groups[best])] = tied[best]
        return settled

    def merge(self, old: Columns, new: Columns) -> tuple[pa.Array, ...]:
        value, by = self.names
        # The side with the lesser (greater) `by` wins; the value breaks a tie.
        near, far = (new, old) if self.end is End.LEAST else (old, new)
        beats = pc.fill_null(precedes(near[by], far[by]), False)
        beaten = pc.fill_null(precedes(far[by], near[by]), False)
        wins_tie = pc.and_not(pc.fill_null(precedes(near[value], far[value]), False), beaten)
        use_new = pc.or_(pc.or_(beats, wins_tie), pc.is_null(old[by]))
        return tuple(pc.if_else(use_new, new[name], old[name]) for name in self.names)


def _one_word(name: str) -> str:
    """A column's name without spaces, so that no two pairs of names read the same with ` by ` between."""
    return name.replace("%", "%25").replace(" ", "%20")
