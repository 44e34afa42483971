"""Approximate functions, of sketches."""

import pyarrow as pa

from dagster_ckpt.operators.aggregates.aggregation import Aggregation
from dagster_ckpt.operators.aggregates.functions.results import count_plan
from dagster_ckpt.operators.aggregates.kinds.sketches import DistinctSketch, QuantileSketch
from dagster_ckpt.operators.aggregates.spec import NUMBERS, ORDERED, AggregatePlan, AggregateSpec, Request

__all__ = ["approx_count_distinct", "approx_quantile"]


def approx_count_distinct(column: str, error: float = 0.05, *, since: str | None = None) -> Aggregation:
    """The approximate number of distinct values: a bigint, never null. Needs `dagster-ckpt[sketches]`.

    `error` is the relative standard error, from 0.005 to 0.25: two of three results are within it. A key takes at most
    about 2 / error ** 2 bytes. The same values give the same result in any order.
    """
    return Aggregation("approx_count_distinct", column, error=error, since=since)


def approx_quantile(column: str, q: float, accuracy: int = 500, *, since: str | None = None) -> Aggregation:
    """The approximate `q`-quantile (0 to 1) of numbers: a double. Needs `dagster-ckpt[sketches]`.

    NaN and infinities are skipped. Uses a t-digest, most accurate near 0 and 1. There is no guarantee; in measurements,
    the share of values below the result was within 4 / accuracy of `q`. `accuracy` is from 10 to 10000, and a key takes
    at most about 21 * accuracy bytes. How the rows are batched may change the result within that error.
    """
    return Aggregation("approx_quantile", column, q=q, accuracy=accuracy, since=since)


def _about_distinct(request: Request) -> AggregatePlan:
    error = request.aggregation.error
    assert error is not None, "checks require it"
    sketch = DistinctSketch.within(request.column, error)
    return count_plan(request.name, sketch, sketch.result)


def _quantile(request: Request) -> AggregatePlan:
    q, accuracy = request.aggregation.q, request.aggregation.accuracy
    assert q is not None, "checks require it"
    assert accuracy is not None, "checks require it"
    sketch = QuantileSketch(request.column, accuracy)
    return AggregatePlan(pa.field(request.name, pa.float64()), (sketch,), lambda state: sketch.result(state, q))


_SKETCH = "a sketch cannot forget a value"
# Spark's are exact in a query: an exact value is within the error that is asked for.
SPECS = (
    AggregateSpec(
        approx_count_distinct,
        ORDERED,
        _about_distinct,
        irreversible=f"{_SKETCH}. Use count_distinct",
        needs_sketches=True,
        spark=(),
    ),
    AggregateSpec(
        approx_quantile, NUMBERS, _quantile, irreversible=f"{_SKETCH}. Use percentile", needs_sketches=True, spark=()
    ),
)
