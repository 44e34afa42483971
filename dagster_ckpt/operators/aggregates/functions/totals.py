"""Totals and means."""

import pyarrow as pa

from dagster_ckpt.operators.aggregates.aggregation import Aggregation
from dagster_ckpt.operators.aggregates.functions import results
from dagster_ckpt.operators.aggregates.kinds import exact_sums
from dagster_ckpt.operators.aggregates.kinds.exact_sums import ExactSum
from dagster_ckpt.operators.aggregates.kinds.sums import DecimalSum, FloatSum, IntegerSum, WideSum
from dagster_ckpt.operators.aggregates.spec import NUMBERS, AggregatePlan, AggregateSpec, Plan, Request

__all__ = ["avg", "sum"]


def sum(column: str, *, since: str | None = None) -> Aggregation:  # noqa: A001  (agg.sum is the standard name)
    """The total: bigint of integers, double of floats, decimal(p + 10, s) of decimal(p, s).

    A total that does not fit its type is an error that declines the epoch; it never wraps round. Over a table whose
    rows change, a total of floats is exact and rounded once.
    """
    return Aggregation("sum", column, since=since)


def avg(column: str, *, since: str | None = None) -> Aggregation:
    """The mean: a double, or decimal(p + 4, s + 4) of decimal(p, s). The total of integers is exact."""
    return Aggregation("avg", column, since=since)


def _total(request: Request) -> IntegerSum | FloatSum | DecimalSum:
    if pa.types.is_decimal(request.type):
        return DecimalSum(request.column, request.type)
    return FloatSum(request.column) if pa.types.is_floating(request.type) else IntegerSum(request.column)


def _sum(request: Request) -> AggregatePlan:
    count, total = request.count, _total(request)
    return AggregatePlan(
        pa.field(request.name, total.fields[0].type),
        (count, total),
        lambda state: results.null_if_none(state[total.name], state[count.name]),
    )


def _average(request: Request) -> AggregatePlan:
    count, type_, double = request.count, request.type, pa.field(request.name, pa.float64())
    if pa.types.is_int64(type_):
        wide = WideSum(request.column)
        high, low = wide.names
        return AggregatePlan(
            double, (count, wide), lambda state: results.wide_mean(state[high], state[low], state[count.name])
        )
    total = _total(request)
    if isinstance(total, DecimalSum):
        mean = results.decimal_mean_type(type_)
        return AggregatePlan(
            pa.field(request.name, mean),
            (count, total),
            lambda state: results.decimal_mean(state[total.name], state[count.name], mean),
        )
    return AggregatePlan(double, (count, total), lambda state: results.mean(state[total.name], state[count.name]))


def _exactly(in_row: Plan, result: results.OfTotal) -> Plan:
    """The plan `in_row`, but a total of floats is one that rows can be taken from."""

    def plan(request: Request) -> AggregatePlan:
        if not pa.types.is_floating(request.type):
            return in_row(request)
        count, total = request.count, ExactSum((request.column,))
        return AggregatePlan(
            pa.field(request.name, pa.float64()),
            (count, total),
            lambda state: result(exact_sums.round_total(state[total.name]), state[count.name]),
        )

    return plan


SUM = AggregateSpec(sum, NUMBERS, _sum, retracted=_exactly(_sum, results.null_if_none), spark=("Sum",))
AVG = AggregateSpec(avg, NUMBERS, _average, retracted=_exactly(_average, results.mean), spark=("Average",))
SPECS = (SUM, AVG)
