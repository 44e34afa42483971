"""Rows of a table and of a query in batch, so that the two can be compared."""

from collections import Counter
from collections.abc import Callable, Iterable
from datetime import datetime
from math import isnan

from pyspark.sql import Row


def bag(rows: Iterable[Iterable[object]], number: Callable[[float], object] = float) -> Counter[object]:
    """The rows, each with how often it is there. Floats are compared as `number` makes them."""
    return Counter(tuple(_plain(each, number) for each in row) for row in rows)


def nine_digits(value: float) -> str:
    """For sums whose last digits depend on their order. There is one NaN and one zero."""
    return "nan" if isnan(value) else f"{value + 0.0:.9g}"


def _plain(value: object, number: Callable[[float], object]) -> object:
    if isinstance(value, Row):
        return _plain(value.asDict(), number)
    if isinstance(value, dict):
        return tuple(_plain(each, number) for each in value.values())
    if isinstance(value, list):
        return tuple(_plain(each, number) for each in value)
    if isinstance(value, float):
        return number(value)
    return value.replace(tzinfo=None) if isinstance(value, datetime) else value
