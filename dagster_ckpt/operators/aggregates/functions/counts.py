"""Counts of rows, and whether all or any of them are true."""

import pyarrow as pa
import pyarrow.compute as pc

from dagster_ckpt.operators.aggregates.aggregation import Aggregation
from dagster_ckpt.operators.aggregates.functions.results import count_plan, null_if_none
from dagster_ckpt.operators.aggregates.kinds.accumulator import Columns
from dagster_ckpt.operators.aggregates.kinds.counts import TrueCount
from dagster_ckpt.operators.aggregates.spec import ANYTHING, BOOLEANS, AggregatePlan, AggregateSpec, Plan, Request
from dagster_ckpt.operators.shared.state_columns import ROWS

__all__ = ["bool_and", "bool_or", "count", "count_if"]


def count(column: str | None = None, *, since: str | None = None) -> Aggregation:
    """The number of rows or, with a column, of rows with a value in it: a bigint, never null."""
    return Aggregation("count", column, since=since)


def count_if(column: str, *, since: str | None = None) -> Aggregation:
    """The number of rows in which a boolean column is true: a bigint, never null."""
    return Aggregation("count_if", column, since=since)


def bool_and(column: str, *, since: str | None = None) -> Aggregation:
    """Whether all values of a boolean column are true."""
    return Aggregation("bool_and", column, since=since)


def bool_or(column: str, *, since: str | None = None) -> Aggregation:
    """Whether any value of a boolean column is true."""
    return Aggregation("bool_or", column, since=since)


def _count(request: Request) -> AggregatePlan:
    if request.aggregation.column is None:  # every aggregate keeps the count of rows
        return AggregatePlan(pa.field(request.name, pa.int64(), nullable=False), (), lambda state: state[ROWS])
    return count_plan(request.name, request.count, lambda state: state[request.count.name])


def _count_if(request: Request) -> AggregatePlan:
    true = TrueCount(request.column)
    return count_plan(request.name, true, lambda state: state[true.name])


def _bool(*, needs_all: bool) -> Plan:
    def plan(request: Request) -> AggregatePlan:
        count, true = request.count, TrueCount(request.column)

        def result(state: Columns) -> pa.Array:
            n = state[count.name]
            return null_if_none(pc.greater_equal(state[true.name], n if needs_all else pa.scalar(1)), n)

        return AggregatePlan(pa.field(request.name, pa.bool_()), (count, true), result)

    return plan


SPECS = (
    AggregateSpec(count, ANYTHING, _count, spark=("Count",)),
    AggregateSpec(count_if, BOOLEANS, _count_if, spark=()),
    # False is before True, so these are the least and the greatest value, and two counts are less than each value.
    AggregateSpec(bool_and, BOOLEANS, _bool(needs_all=True), spark=("Min", "First", "AnyValue"), idempotent=True),
    AggregateSpec(bool_or, BOOLEANS, _bool(needs_all=False), spark=("Max", "Last"), idempotent=True),
)
