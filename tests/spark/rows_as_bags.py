"""Rows of a table and of a query in batch, so that the two can be compared."""

from collections import Counter
from collections.abc import Iterable
from datetime import datetime

from pyspark.sql import Row


def bag(rows: Iterable[Iterable[object]]) -> Counter[object]:
    """The rows, each with how often it is there."""
    return Counter(tuple(map(_plain, row)) for row in rows)


def _plain(value: object) -> object:
    if isinstance(value, Row):
        return _plain(value.asDict())
    if isinstance(value, dict):
        return tuple(map(_plain, value.values()))
    return value.replace(tzinfo=None) if isinstance(value, datetime) else value
