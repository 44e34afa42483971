"""Joins of two inputs: by key and time interval, or by key and window.

Reading order. The operators are `interval/interval_join` and `window/window_join`.

    join_types       the types of joins, and what each emits
    sides            the two inputs of a join
    appending_join   what both operators share
    join_checks      what a join may be
    interval/        rows whose times are near each other
    window/          rows in the same window

Used by both
    arrivals         the rows that arrived in an epoch
    match_ranges     matches as ranges of rows
    joined_rows      the joined rows
    interval_bounds  an interval join's time axis, and its buckets
"""

from dagster_ckpt.operators.joins.interval.interval_join import IntervalJoin
from dagster_ckpt.operators.joins.join_types import JoinType
from dagster_ckpt.operators.joins.window.window_join import WindowedJoin

__all__ = ["IntervalJoin", "JoinType", "WindowedJoin"]
