"""Output columns from state columns. `count` is the number of values; where it is 0 the result is null."""

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dagster_ckpt.operators.aggregates.kinds.accumulator import Accumulator, Columns
from dagster_ckpt.operators.aggregates.kinds.sums import DECIMAL_DIGITS_MAX
from dagster_ckpt.operators.aggregates.spec import AggregatePlan
from dagster_ckpt.operators.shared.arrays.nulls import or_null

OfTotal = Callable[[pa.Array, pa.Array], pa.Array]
"""From a total and the number of values."""
_MEAN_DIGITS = 4
"""The digits that Spark adds to the precision and the scale of a decimal column for its mean."""


def count_plan(name: str, accumulator: Accumulator, result: Callable[[Columns], pa.Array]) -> AggregatePlan:
    """The plan of a number that is never null."""
    return AggregatePlan(pa.field(name, pa.int64(), nullable=False), (accumulator,), result)


def null_if_none(column: pa.Array, count: pa.Array) -> pa.Array:
    """The column itself."""
    return or_null(column, count.to_numpy() > 0)


def mean(total: pa.Array, count: pa.Array) -> pa.Array:
    """A double."""
    n = count.to_numpy()
    return or_null(pa.array(total.to_numpy() / np.maximum(n, 1)), n > 0)


def wide_mean(high: pa.Array, low: pa.Array, count: pa.Array) -> pa.Array:
    """A double, from a total in two halves (`WideSum`)."""
    n = count.to_numpy()
    total = high.to_numpy() * float(1 << 32) + low.to_numpy()
    return or_null(pa.array(total / np.maximum(n, 1)), n > 0)


def decimal_mean_type(type_: pa.Decimal128Type) -> pa.Decimal128Type:
    """Spark's type for the mean of a decimal column."""
    digits = (min(number + _MEAN_DIGITS, DECIMAL_DIGITS_MAX) for number in (type_.precision, type_.scale))
    return pa.decimal128(*digits)


def decimal_mean(total: pa.Array, count: pa.Array, type_: pa.Decimal128Type) -> pa.Array:
    """A decimal rounded half up, as Spark does. Raises `OverflowError` where it has more digits than its type."""
    divisor = pc.max_element_wise(count, pa.scalar(1, pa.int64())).cast(pa.decimal256(19, 0))
    # Arrow's division truncates, but twenty digits further right: that cannot change how a digit rounds.
    quotient = pc.divide(total.cast(pa.decimal256(DECIMAL_DIGITS_MAX, total.type.scale)), divisor)
    try:
        rounded = pc.round(quotient, type_.scale, "half_towards_infinity").cast(type_)
    except pa.ArrowInvalid as error:
        raise OverflowError(
            f"a mean outgrew its type: cast the column to a decimal with fewer digits or to double first. "
            f"aggregate=avg, type=decimal({type_.precision}, {type_.scale})"
        ) from error
    return null_if_none(rounded, count)


def variance(m2: pa.Array, count: pa.Array, ddof: int = 1) -> pa.Array:
    """The variance, a double: of a sample (`ddof` 1) or of the population (0); null for `ddof` values or fewer."""
    n = count.to_numpy()
    # Rounding can leave M2 slightly below 0. numpy's maximum keeps NaN, unlike Arrow's.
    return or_null(pa.array(np.maximum(m2.to_numpy(), 0.0) / np.maximum(n - ddof, 1)), n > ddof)


def stddev(m2: pa.Array, count: pa.Array, ddof: int = 1) -> pa.Array:
    """The square root of `variance`."""
    return pc.sqrt(variance(m2, count, ddof))


def sizes(lists: pa.Array) -> pa.Array:
    """The length of each list, as int64."""
    return pc.list_value_length(lists).cast(pa.int64())
