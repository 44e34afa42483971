"""Joins of two inputs: by key alone, by key and time interval, or by key and window.

Reading order. The operators are `interval_join`, `window_join` and `regular/regular_join`.

    join_types       the types of joins, and what each emits
    sides            the two inputs of a join
    appending_join   what both joins in time share
    join_checks      what a join may be
    interval_join    rows whose times are near each other
    window_join      rows in the same window
    regular/         rows with equal keys, over inputs that append or change

Used by several
    arrivals         the rows that arrived in an epoch
    match_ranges     matches as ranges of rows
    joined_rows      the joined rows
    interval_bounds  an interval join's time axis, and its buckets
    bucket_lookups   look-ups of buckets, in batches
"""

from dagster_ckpt.operators.joins.interval_join import IntervalJoin
from dagster_ckpt.operators.joins.join_types import JoinType
from dagster_ckpt.operators.joins.regular.regular_join import RegularJoin
from dagster_ckpt.operators.joins.window_join import WindowedJoin

__all__ = ["IntervalJoin", "JoinType", "RegularJoin", "WindowedJoin"]
