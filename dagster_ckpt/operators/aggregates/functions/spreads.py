"""Standard deviations and variances."""

from collections.abc import Callable

import pyarrow as pa

from dagster_ckpt.operators.aggregates.aggregation import Aggregation
from dagster_ckpt.operators.aggregates.functions import results
from dagster_ckpt.operators.aggregates.kinds import exact_sums
from dagster_ckpt.operators.aggregates.kinds.exact_sums import ExactSum
from dagster_ckpt.operators.aggregates.kinds.moments import Moments
from dagster_ckpt.operators.aggregates.spec import NUMBERS, AggregatePlan, AggregateSpec, Request

__all__ = ["stddev", "stddev_pop", "var_pop", "variance"]


def stddev(column: str, *, since: str | None = None) -> Aggregation:
    """The sample standard deviation, a double; null for fewer than two values."""
    return Aggregation("stddev", column, since=since)


def variance(column: str, *, since: str | None = None) -> Aggregation:
    """The sample variance, a double; null for fewer than two values."""
    return Aggregation("variance", column, since=since)


def stddev_pop(column: str, *, since: str | None = None) -> Aggregation:
    """The standard deviation of the population, a double; null without a value."""
    return Aggregation("stddev_pop", column, since=since)


def var_pop(column: str, *, since: str | None = None) -> Aggregation:
    """The variance of the population, a double; null without a value."""
    return Aggregation("var_pop", column, since=since)


_VARIANCE, _ROOT = (results.variance, exact_sums.variance), (results.stddev, exact_sums.stddev)


def _spread(
    call: Callable[..., Aggregation],
    ddof: int,
    of: tuple[Callable[..., pa.Array], Callable[..., pa.Array]],
    *spark: str,
) -> AggregateSpec:
    """That of a sample (`ddof` 1) or of the population (0): `of` the moments, and of exact sums."""
    result, exact_result = of

    def plan(request: Request) -> AggregatePlan:
        count, moments = request.count, Moments(request.column)
        _, m2 = moments.names
        field = pa.field(request.name, pa.float64())
        return AggregatePlan(field, (count, moments), lambda state: result(state[m2], state[count.name], ddof))

    def exact_plan(request: Request) -> AggregatePlan:
        column, count = request.column, request.count
        total, squares = ExactSum((column,)), ExactSum((column, column))
        return AggregatePlan(
            pa.field(request.name, pa.float64()),
            (count, total, squares),
            lambda state: exact_result(state[total.name], state[squares.name], state[count.name], ddof),
        )

    return AggregateSpec(call, NUMBERS, plan, retracted=exact_plan, spark=spark)


SPECS = (
    _spread(stddev, 1, _ROOT, "StddevSamp"),
    _spread(variance, 1, _VARIANCE, "VarianceSamp"),
    _spread(stddev_pop, 0, _ROOT, "StddevPop"),
    _spread(var_pop, 0, _VARIANCE, "VariancePop", "RegrReplacement"),
)
