"""The aggregates of `Stream.aggregate`: `agg.count()`, `agg.sum("column")` and so on.

Nulls are skipped, as in SQL; only `count()` without a column counts every row. An aggregate over nothing but nulls is
null (a count is 0). NaN is greater than any other number and equal to itself, as in Spark. Result types are Spark's.
"""

from dataclasses import dataclass
from enum import StrEnum


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


@dataclass(frozen=True, slots=True)
class Aggregation:
    """One aggregate of one column, not yet checked against any input. Made by the functions of this module.

    `column` is None for a count of rows; `by` is the column that orders `first` and `last`, None for the event time.
    """

    function: Function
    column: str | None = None
    by: str | None = None


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
