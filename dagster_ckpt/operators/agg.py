"""The aggregates of `Stream.aggregate`: `agg.count()`, `agg.sum("column")` and so on.

Nulls are skipped, as in SQL; only `count()` without a column counts every row. An aggregate over nothing but nulls is
null (a count is 0, a list is empty). NaN is greater than any other number and equal to itself, as in Spark. Result
types are Spark's.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Function(StrEnum):
    """What an aggregate computes."""

    COUNT = "count"
    SUM = "sum"
    MIN = "min"
    MAX = "max"
    AVG = "avg"
    FIRST = "first"
    LAST = "last"
    STDDEV = "stddev"
    VARIANCE = "variance"
    COUNT_DISTINCT = "count_distinct"
    COLLECT = "collect"
    APPROX_COUNT_DISTINCT = "approx_count_distinct"
    APPROX_QUANTILE = "approx_quantile"


@dataclass(frozen=True, slots=True)
class Aggregation:
    """One aggregate of one column, not yet checked against any input. Made by the functions of this module.

    `column` is None for a count of rows; `by` is the column that orders `first`, `last` and `collect`, None for the
    event time. The others are None where the function does not take them.
    """

    function: Function
    column: str | None = None
    by: str | None = None
    limit: int | None = None
    error: float | None = None
    q: float | None = None
    accuracy: int | None = None

    def spelled(self) -> dict[str, object]:
        """The aggregate as plain JSON values. What older releases did not know is there only where it is said."""
        more = {"limit": self.limit, "error": self.error, "q": self.q, "accuracy": self.accuracy}
        return {
            "function": str(self.function),
            "column": self.column,
            "by": self.by,
            **{name: value for name, value in more.items() if value is not None},
        }

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "Aggregation":
        """The aggregate as `spelled` has written it; other values beside are left alone."""
        more = {name: values[name] for name in ("limit", "error", "q", "accuracy") if name in values}
        return cls(Function(values["function"]), values["column"], values["by"], **more)


def count(column: str | None = None) -> Aggregation:
    """How many rows there are, or, with a column, how many of them have a value there: a bigint, never null."""
    return Aggregation(Function.COUNT, column)


def sum(column: str) -> Aggregation:  # noqa: A001  (agg.sum is the name everybody knows)
    """The total: bigint of integers, double of floats, decimal(p + 10, s) of decimal(p, s).

    A total that does not fit its type is an error that declines the epoch; it never wraps round.
    """
    return Aggregation(Function.SUM, column)


def min(column: str) -> Aggregation:  # noqa: A001
    """The least value of any column but nested ones; strings compare by their bytes, False before True."""
    return Aggregation(Function.MIN, column)


def max(column: str) -> Aggregation:  # noqa: A001
    """The greatest value of any column but nested ones; strings compare by their bytes, False before True."""
    return Aggregation(Function.MAX, column)


def avg(column: str) -> Aggregation:
    """The mean: a double, or decimal(p + 4, s + 4) of decimal(p, s). Of integers the total is kept exactly."""
    return Aggregation(Function.AVG, column)


def first(column: str, by: str | None = None) -> Aggregation:
    """The value of the row with the least `by` (default: the event time); of several such rows the least value.

    Rows where the value or `by` is null are skipped.
    """
    return Aggregation(Function.FIRST, column, by)


def last(column: str, by: str | None = None) -> Aggregation:
    """The value of the row with the greatest `by` (default: the event time); of several such rows the greatest value.

    Rows where the value or `by` is null are skipped.
    """
    return Aggregation(Function.LAST, column, by)


def stddev(column: str) -> Aggregation:
    """The sample standard deviation, a double; null for fewer than two values."""
    return Aggregation(Function.STDDEV, column)


def variance(column: str) -> Aggregation:
    """The sample variance, a double; null for fewer than two values."""
    return Aggregation(Function.VARIANCE, column)


def count_distinct(column: str) -> Aggregation:
    """How many different values there are, exactly: a bigint, never null. Of any column but nested ones.

    Every value is kept once for each key, or for each window of a key, as long as that is. Without `expire_after` an
    epoch costs what its own rows do. With it, and in windows, the values lie in one list, which is written anew in
    every epoch that touches it: where they are hundreds of thousands, take `approx_count_distinct`.
    """
    return Aggregation(Function.COUNT_DISTINCT, column)


def collect(column: str, limit: int, by: str | None = None) -> Aggregation:
    """A list of the first `limit` values by `by` (default: the event time); those of one `by` with the least first.

    Equal values are there as often as they came. Rows where the value or `by` is null are skipped; where all are, the
    list is empty. The list is written anew in every epoch that touches it: keep `limit` in the thousands at most.
    """
    return Aggregation(Function.COLLECT, column, by, limit=limit)


def approx_count_distinct(column: str, error: float = 0.05) -> Aggregation:
    """About how many different values there are: a bigint, never null. Needs `dagster-ckpt[sketches]`.

    `error` is the relative standard error, from 0.005 to 0.25: two of three results are no further off. A key takes at
    most about 2 / error ** 2 bytes. However the rows came, the same values give the same result.
    """
    return Aggregation(Function.APPROX_COUNT_DISTINCT, column, error=error)


def approx_quantile(column: str, q: float, accuracy: int = 500) -> Aggregation:
    """About the value below which a share `q` (0 to 1) of the numbers lies: a double. Needs `dagster-ckpt[sketches]`.

    NaN and infinities are skipped. From a t-digest, most exact near 0 and 1. There is no guarantee; where it was
    measured, the share of values below the result was no further from `q` than 4 / accuracy. `accuracy` is from 10 to
    10000, and a key takes at most about 21 * accuracy bytes. How the rows were cut may show within that error.
    """
    return Aggregation(Function.APPROX_QUANTILE, column, q=q, accuracy=accuracy)
