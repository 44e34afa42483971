"""From a named aggregate to its state and its output, over an input that updates and deletes rows."""

from collections.abc import Mapping

from dagster_ckpt.operators.agg import Aggregation, Function
from dagster_ckpt.operators.shared.accumulators.accumulator_plan import AggregatePlan, Planner, Types, plan

_PLANS: Mapping[Function, Planner] = {}
"""The functions whose state cannot be negated as it is for an input that only appends."""


def plan_updating(name: str, aggregation: Aggregation, types: Types, event_time: str | None) -> AggregatePlan:
    """A `Planner` of aggregates that support retraction (`aggregate_checks.check_updating`)."""
    return _PLANS.get(aggregation.function, plan)(name, aggregation, types, event_time)
