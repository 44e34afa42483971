"""The least and the greatest value, and the first and the last."""

from collections.abc import Sequence

import pyarrow as pa

from dagster_ckpt.operators.aggregates.aggregation import Aggregation
from dagster_ckpt.operators.aggregates.kinds.edge_rows import EdgeRow
from dagster_ckpt.operators.aggregates.kinds.edges import Edge
from dagster_ckpt.operators.aggregates.kinds.extremes import Extreme
from dagster_ckpt.operators.aggregates.kinds.settled import BestValue
from dagster_ckpt.operators.aggregates.spec import ORDERED, AggregatePlan, AggregateSpec, Plan, Request
from dagster_ckpt.operators.shared.arrays.value_order import End

__all__ = ["first", "last", "max", "min"]


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


_LEAST = ("Min", "First", "AnyValue")
_GREATEST = ("Max", "Last", "PivotFirst")
"""Which row is the first or the last of a group SQL leaves open: any value will do."""
SPECS = (
    AggregateSpec(min, ORDERED, _extreme(End.LEAST), retracted=_best_extreme(End.LEAST), spark=_LEAST, idempotent=True),
    AggregateSpec(
        max, ORDERED, _extreme(End.GREATEST), retracted=_best_extreme(End.GREATEST), spark=_GREATEST, idempotent=True
    ),
    AggregateSpec(first, ORDERED, _edge(End.LEAST), retracted=_best_edge(End.LEAST), spark=("MinBy",)),
    AggregateSpec(last, ORDERED, _edge(End.GREATEST), retracted=_best_edge(End.GREATEST), spark=("MaxBy",)),
)
