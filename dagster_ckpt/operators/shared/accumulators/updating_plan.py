"""From a named aggregate to its state and its output, over an input that updates and deletes rows."""

from collections.abc import Mapping

import pyarrow as pa

from dagster_ckpt.operators.agg import Aggregation, Function
from dagster_ckpt.operators.shared.accumulators.accumulator_plan import AggregatePlan, Planner, Types, plan
from dagster_ckpt.operators.shared.accumulators.edges import Edge
from dagster_ckpt.operators.shared.accumulators.extremes import End, Extreme
from dagster_ckpt.operators.shared.accumulators.settled import BestValue


def plan_updating(name: str, aggregation: Aggregation, types: Types, event_time: str | None) -> AggregatePlan:
    """A `Planner` of aggregates that support retraction (`aggregate_checks.check_updating`)."""
    return _PLANS.get(aggregation.function, plan)(name, aggregation, types, event_time)


def _first_value(name: str, aggregation: Aggregation, types: Types, event_time: str | None) -> AggregatePlan:
    """Of the least or greatest value, or of the first or last one by another column."""
    column, function = aggregation.column, aggregation.function
    assert column is not None, "checks require it"
    end = End.LEAST if function in (Function.MIN, Function.FIRST) else End.GREATEST
    if function in (Function.MIN, Function.MAX):
        best = BestValue(Extreme(column, types[column], end).name, (column,), types[column], end)
    else:
        by = aggregation.by or event_time
        assert by is not None, "checks require an order"
        value, _ = Edge(column, types[column], by, types[by], end).names
        best = BestValue(value, (by, column), types[column], end)
    return AggregatePlan(pa.field(name, best.type), (best,), lambda state: state[best.name])


_PLANS: Mapping[Function, Planner] = {
    Function.MIN: _first_value,
    Function.MAX: _first_value,
    Function.FIRST: _first_value,
    Function.LAST: _first_value,
}
"""The functions whose state cannot be negated as it is for an input that only appends."""
