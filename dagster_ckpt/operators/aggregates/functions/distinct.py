"""Functions of the distinct values of a column."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.lsm.columns import concat
from dagster_ckpt.operators.aggregates.aggregation import Aggregation
from dagster_ckpt.operators.aggregates.bags.distinct import (
    DistinctValues,
    MarkedValues,
    NewAndGoneValues,
    NewValues,
)
from dagster_ckpt.operators.aggregates.functions.results import count_plan, sizes
from dagster_ckpt.operators.aggregates.functions.totals import AVG, SUM
from dagster_ckpt.operators.aggregates.kinds.accumulator import Accumulator, Columns, GroupedRows, Keeps
from dagster_ckpt.operators.aggregates.spec import COMPARABLE, AggregatePlan, AggregateSpec, Plan, Request
from dagster_ckpt.operators.shared.arrays.lists import groups_of, values_of
from dagster_ckpt.operators.shared.arrays.value_order import is_orderable

__all__ = ["avg_distinct", "count_distinct", "sum_distinct"]


def count_distinct(column: str, *, since: str | None = None) -> Aggregation:
    """The exact number of distinct values: a bigint, never null.

    The column may have any type that is not nested, or be a struct. Each value is kept once per key, or per window of a
    key, for as long as that key or window is kept. Without `expire_after` the cost of an epoch depends on its rows
    alone. With it, and in windows, the values are one list, which is rewritten in every epoch that touches it: for
    hundreds of thousands, use `approx_count_distinct`.
    """
    return Aggregation("count_distinct", column, since=since)


def sum_distinct(column: str, *, since: str | None = None) -> Aggregation:
    """The total of the distinct values, as SQL's `sum(DISTINCT column)`; see `sum`. Kept as by `count_distinct`."""
    return Aggregation("sum_distinct", column, since=since)


def avg_distinct(column: str, *, since: str | None = None) -> Aggregation:
    """The mean of the distinct values, as SQL's `avg(DISTINCT column)`; see `avg`. Kept as by `count_distinct`."""
    return Aggregation("avg_distinct", column, since=since)


def _count_listed(request: Request) -> AggregatePlan:
    if not is_orderable(request.type):
        raise InvalidPipelineError(
            "distinct structs are kept in a table beside, which neither a window nor a key that expires has: leave "
            f"expire_after out; for windows make their start a column, and a key. aggregate={request.name}, "
            f"column={request.column}, type={request.type}"
        )
    distinct = DistinctValues(request.column, request.type)
    return count_plan(request.name, distinct, lambda state: sizes(state[distinct.name]))


def _count_marked(marks: Callable[[str], MarkedValues]) -> Plan:
    def plan(request: Request) -> AggregatePlan:
        marked = marks(request.column)
        return count_plan(request.name, marked, lambda state: state[marked.name])

    return plan


def _over_marks(inner: Plan, marks: Callable[[str], MarkedValues]) -> Plan:
    """What `inner` plans, of the values of rows that bring a new one, or take the last one away."""

    def plan(request: Request) -> AggregatePlan:
        planned, marked = inner(_of_new(request)), marks(request.column)
        accumulators = tuple(OfNewValues(each, marked) for each in planned.accumulators)
        return AggregatePlan(planned.field, (marked, *accumulators), planned.result)

    return plan


def _over_list(inner: Plan) -> Plan:
    """What `inner` plans, of the distinct values, which are a list in the row of the group."""

    def plan(request: Request) -> AggregatePlan:
        planned, distinct = inner(_of_new(request)), DistinctValues(request.column, request.type)

        def result(state: Columns) -> pa.Array:
            if len(state[distinct.name]) == 0:
                return pa.nulls(0, planned.field.type)
            return planned.result(totals_of_lists(distinct, planned.accumulators, state))

        return AggregatePlan(planned.field, (distinct,), result)

    return plan


def _of_new(request: Request) -> Request:
    column = of_new(request.column)
    aggregation = replace(request.aggregation, column=column)
    return replace(request, aggregation=aggregation, types={**request.types, column: request.type})


def _of_distinct(call: Callable[..., Aggregation], spec: AggregateSpec) -> AggregateSpec:
    """The function of the distinct values."""
    return AggregateSpec(
        call,
        spec.takes,
        _over_list(spec.in_row),
        beside=_over_marks(spec.in_row, NewValues),
        retracted=_over_marks(spec.retracted or spec.in_row, NewAndGoneValues),
        spark=(),
        spark_distinct=spec.spark,
    )


SPECS = (
    AggregateSpec(
        count_distinct,
        COMPARABLE,
        _count_listed,
        beside=_count_marked(NewValues),
        retracted=_count_marked(NewAndGoneValues),
        spark=("HyperLogLogPlusPlus",),  # an exact number is within the error that is asked for
        spark_distinct=("Count",),
        idempotent=True,
    ),
    _of_distinct(sum_distinct, SUM),
    _of_distinct(avg_distinct, AVG),
)


def of_new(column: str) -> str:
    """The name under which the totals know the distinct values of a column."""
    return f"distinct {column}"


@dataclass(frozen=True)
class OfNewValues(Accumulator):
    """An accumulator over the column `of_new`: the values of the rows that are marked as new, or as gone."""

    inner: Accumulator
    marks: MarkedValues

    @property
    def keeps(self) -> Keeps:
        return self.inner.keeps

    @property
    def fields(self) -> tuple[pa.Field, ...]:
        return self.inner.fields

    def of_rows(self, rows: GroupedRows) -> tuple[pa.Array, ...]:
        column = rows.columns[self.marks.column]
        values = pc.if_else(rows.columns[self.marks.marks], column, pa.scalar(None, column.type))
        columns = {**rows.columns, of_new(self.marks.column): values}
        return self.inner.of_rows(GroupedRows(rows.starts, rows.sizes, columns))

    def merge(self, old: Columns, new: Columns) -> tuple[pa.Array, ...]:
        return self.inner.merge(old, new)


def totals_of_lists(distinct: DistinctValues, accumulators: Sequence[Accumulator], state: Columns) -> Columns:
    """The state columns of accumulators over the values of each list."""
    lists = state[distinct.name]
    # A null in each group: an accumulator has no group without a row, and skips nulls.
    values = concat([values_of([lists]), pa.nulls(len(lists), distinct.type)])
    groups = np.concatenate([groups_of([lists]), np.arange(len(lists))])
    order = np.argsort(groups, kind="stable")
    starts = np.flatnonzero(np.diff(groups[order], prepend=-1))
    rows = GroupedRows(
        starts, np.diff(starts, append=len(order)), {of_new(distinct.column): values.take(pa.array(order))}
    )
    return {
        field.name: column
        for each in accumulators
        for field, column in zip(each.fields, each.of_rows(rows), strict=True)
    }
