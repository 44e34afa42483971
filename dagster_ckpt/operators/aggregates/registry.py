"""All functions of `agg` by name, and the plans of their aggregates."""

from collections.abc import Mapping

from dagster_ckpt.operators.aggregates.aggregation import Aggregation
from dagster_ckpt.operators.aggregates.functions import (
    approximate,
    bits,
    counts,
    distinct,
    edges,
    pairs,
    spreads,
    totals,
    values,
)
from dagster_ckpt.operators.aggregates.spec import BOOLEANS, AggregatePlan, AggregateSpec, Request, Types

FUNCTIONS: Mapping[str, AggregateSpec] = {
    spec.name: spec
    for family in (counts, totals, edges, spreads, pairs, distinct, bits, values, approximate)
    for spec in family.SPECS
}


def plan(name: str, aggregation: Aggregation, types: Types, event_time: str | None) -> AggregatePlan:
    """A `Planner` that keeps all state in the row of the group."""
    return FUNCTIONS[aggregation.function].in_row(Request(name, aggregation, types, event_time))


def plan_with_tables(name: str, aggregation: Aggregation, types: Types, event_time: str | None) -> AggregatePlan:
    """A `Planner` that may use a separate state table: see `distinct_table` and `bag_table`."""
    spec = FUNCTIONS[aggregation.function]
    return (spec.beside or spec.in_row)(Request(name, aggregation, types, event_time))


def plan_updating(name: str, aggregation: Aggregation, types: Types, event_time: str | None) -> AggregatePlan:
    """A `Planner` of aggregates that support retraction (`aggregate_checks.check_updating`)."""
    spec = FUNCTIONS[aggregation.function]
    return (spec.retracted or spec.in_row)(Request(name, aggregation, types, event_time))


def spark_function(name: str, *, of_booleans: bool, distinct: bool) -> AggregateSpec | None:
    """The function that a call of this class of Spark's aggregates is; None: there is none.

    False is before True, so the least and the greatest boolean are functions of their own.
    """
    found = [spec for spec in FUNCTIONS.values() if name in (spec.spark_distinct if distinct else spec.spark)]
    if distinct and not found:
        found = [spec for spec in FUNCTIONS.values() if spec.idempotent and name in spec.spark]
    fitting = [spec for spec in found if (spec.takes is BOOLEANS) == of_booleans]
    return next(iter(fitting or found), None)
