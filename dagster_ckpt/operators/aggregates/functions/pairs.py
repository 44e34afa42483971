"""Functions of two columns: covariance, correlation, regression."""

from collections.abc import Callable

import pyarrow as pa

from dagster_ckpt.operators.aggregates.aggregation import Aggregation
from dagster_ckpt.operators.aggregates.kinds.accumulator import Columns
from dagster_ckpt.operators.aggregates.kinds.exact_sums import ExactSum, Pairs
from dagster_ckpt.operators.aggregates.spec import NUMBERS, AggregatePlan, AggregateSpec, Request

__all__ = ["corr", "covar_pop", "covar_samp", "regr_intercept", "regr_r2", "regr_slope"]


def corr(column: str, other: str, *, since: str | None = None) -> Aggregation:
    """Pearson's correlation of two number columns, a double; null for fewer than two rows.

    Rows with a null in either column are skipped, here and in the other functions of two columns. Their sums are exact,
    so the results do not depend on the order of the rows; a key takes about 160 bytes for all of them together. Where
    either column always has the same value, Spark divides by zero, and this is null.
    """
    return Aggregation("corr", column, other=other, since=since)


def covar_pop(column: str, other: str, *, since: str | None = None) -> Aggregation:
    """The covariance of the population, a double; null without a row. See `corr`."""
    return Aggregation("covar_pop", column, other=other, since=since)


def covar_samp(column: str, other: str, *, since: str | None = None) -> Aggregation:
    """The sample covariance, a double; null for fewer than two rows. See `corr`."""
    return Aggregation("covar_samp", column, other=other, since=since)


def regr_slope(column: str, other: str, *, since: str | None = None) -> Aggregation:
    """The slope of the line that fits `column` (y) by `other` (x) best, a double; null if x is always the same."""
    return Aggregation("regr_slope", column, other=other, since=since)


def regr_intercept(column: str, other: str, *, since: str | None = None) -> Aggregation:
    """Where the line that fits `column` (y) by `other` (x) best is at x = 0, a double; null if x is always the same."""
    return Aggregation("regr_intercept", column, other=other, since=since)


def regr_r2(column: str, other: str, *, since: str | None = None) -> Aggregation:
    """How well that line fits, from 0 to 1, a double; null if x is always the same, 1 if only y is."""
    return Aggregation("regr_r2", column, other=other, since=since)


def _of_pairs(
    call: Callable[..., Aggregation],
    squares: Callable[[Pairs], tuple[ExactSum, ...]],
    result: Callable[[Pairs, Columns], pa.Array],
    *spark: str,
) -> AggregateSpec:
    """A function that needs these sums of squares besides the totals and the products."""

    def plan(request: Request) -> AggregatePlan:
        assert request.aggregation.other is not None, "checks require it"
        pairs = Pairs(request.column, request.aggregation.other)
        sums = (*pairs.totals(), pairs.products(), *squares(pairs))
        field = pa.field(request.name, pa.float64())
        return AggregatePlan(field, (pairs.count, *sums), lambda state: result(pairs, state))

    return AggregateSpec(call, NUMBERS, plan, spark=spark)


def _of_x(pairs: Pairs) -> tuple[ExactSum, ...]:
    return pairs.squares()[1:]


SPECS = (
    _of_pairs(corr, Pairs.squares, Pairs.correlation, "Corr"),
    _of_pairs(covar_pop, lambda _: (), lambda pairs, state: pairs.covariance(state, 0), "CovPopulation", "RegrSXY"),
    _of_pairs(covar_samp, lambda _: (), lambda pairs, state: pairs.covariance(state, 1), "CovSample"),
    _of_pairs(regr_slope, _of_x, Pairs.slope, "RegrSlope"),
    _of_pairs(regr_intercept, _of_x, Pairs.intercept, "RegrIntercept"),
    _of_pairs(regr_r2, Pairs.squares, Pairs.r2, "RegrR2"),
)
