"""From a named aggregate to its state and its output, over an input that updates and deletes rows."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import pyarrow as pa

from dagster_ckpt.operators.agg import Aggregation, Function
from dagster_ckpt.operators.aggregates.bags.distinct import NewAndGoneValues
from dagster_ckpt.operators.aggregates.kinds import exact_sums
from dagster_ckpt.operators.aggregates.kinds.edge_rows import EdgeRow
from dagster_ckpt.operators.aggregates.kinds.edges import Edge
from dagster_ckpt.operators.aggregates.kinds.exact_sums import ExactSum
from dagster_ckpt.operators.aggregates.kinds.extremes import Extreme
from dagster_ckpt.operators.aggregates.kinds.settled import BestValue
from dagster_ckpt.operators.aggregates.plans import bag_plans, output_columns
from dagster_ckpt.operators.aggregates.plans.accumulator_plan import ddof_of, is_stddev, plan
from dagster_ckpt.operators.aggregates.plans.aggregate_plan import AggregatePlan, Request, Types
from dagster_ckpt.operators.shared.arrays.value_order import End


def plan_updating(name: str, aggregation: Aggregation, types: Types, event_time: str | None) -> AggregatePlan:
    """A `Planner` of aggregates that support retraction (`aggregate_checks.check_updating`)."""
    request = bag_plans.request_of(name, aggregation, types, event_time)
    if request is None:
        return plan(name, aggregation, types, event_time)
    if aggregation.function in bag_plans.OF_BAGS_WITH_RETRACTION:
        return bag_plans.beside(request)
    if aggregation.function in _OF_DISTINCT:
        return bag_plans.of_marked(request, _distinct_total, NewAndGoneValues(request.column))
    if aggregation.function not in _PLANS:
        return plan(name, aggregation, types, event_time)
    if aggregation.function in (Function.SUM, Function.AVG) and not pa.types.is_floating(request.type):
        return plan(name, aggregation, types, event_time)
    return _PLANS[aggregation.function](request)


def _distinct_total(request: Request) -> AggregatePlan:
    one = replace(request.aggregation, function=_OF_DISTINCT[request.aggregation.function], column=request.column)
    return plan_updating(request.name, one, request.types, request.event_time)


def _total(request: Request) -> AggregatePlan:
    count, total = request.count, ExactSum((request.column,))
    result = output_columns.mean if request.aggregation.function is Function.AVG else output_columns.null_if_none
    return AggregatePlan(
        pa.field(request.name, pa.float64()),
        (count, total),
        lambda state: result(exact_sums.rounded(state[total.name]), state[count.name]),
    )


def _spread(request: Request) -> AggregatePlan:
    column, count = request.column, request.count
    total, squares, ddof = ExactSum((column,)), ExactSum((column, column)), ddof_of(request)
    result = exact_sums.stddev if is_stddev(request) else exact_sums.variance
    return AggregatePlan(
        pa.field(request.name, pa.float64()),
        (count, total, squares),
        lambda state: result(state[total.name], state[squares.name], state[count.name], ddof),
    )


def _first_value(request: Request) -> AggregatePlan:
    """Of the least or greatest value, or of the first or last one by another column."""
    column, type_, function = request.column, request.type, request.aggregation.function
    end = End.LEAST if function in (Function.MIN, Function.FIRST) else End.GREATEST
    if function in (Function.MIN, Function.MAX):
        best = BestValue(Extreme(column, type_, end).name, (column,), type_, end)
    else:
        columns = request.aggregation.columns
        if columns is not None:
            types = tuple(request.types[name] for name in columns)
            edge = EdgeRow(columns, types, request.by, request.types[request.by], end)
            best = BestValue(edge.names[-1], (request.by, *columns), edge.type, end, row=True)
            return AggregatePlan(pa.field(request.name, best.type), (best,), lambda state: state[best.name])
        value, _ = Edge(column, type_, request.by, request.types[request.by], end).names
        best = BestValue(value, (request.by, column), type_, end)
    return AggregatePlan(pa.field(request.name, best.type), (best,), lambda state: state[best.name])


def _distinct(request: Request) -> AggregatePlan:
    distinct, field = NewAndGoneValues(request.column), pa.field(request.name, pa.int64(), nullable=False)
    return AggregatePlan(field, (distinct,), lambda state: state[distinct.name])


_OF_DISTINCT = {Function.SUM_DISTINCT: Function.SUM, Function.AVG_DISTINCT: Function.AVG}
_PLANS: Mapping[Function, Callable[[Request], AggregatePlan]] = {
    Function.SUM: _total,
    Function.AVG: _total,
    Function.STDDEV: _spread,
    Function.VARIANCE: _spread,
    Function.STDDEV_POP: _spread,
    Function.VAR_POP: _spread,
    Function.COUNT_DISTINCT: _distinct,
    Function.MIN: _first_value,
    Function.MAX: _first_value,
    Function.FIRST: _first_value,
    Function.LAST: _first_value,
}
"""The functions whose state cannot be negated as it is for an input that only appends."""
