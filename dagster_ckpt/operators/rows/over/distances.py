"""Frames by distance: rows whose values in the order are so far from a row's own value."""

import numpy as np
import pyarrow as pa

from dagster_ckpt.lsm.columns import Mask, Positions
from dagster_ckpt.operators.shared.arrays.nulls import has_value
from dagster_ckpt.operators.shared.arrays.value_order import GREATEST, LEAST, is_whole, order_column
from dagster_ckpt.operators.shared.ranked.order_by import OrderColumn


def is_measurable(type_: pa.DataType) -> bool:
    """Whether values of this type have distances: whole numbers, dates in days, timestamps in microseconds."""
    return is_whole(type_)


def measure(by: OrderColumn, column: pa.Array) -> tuple[Positions, Mask]:
    """The values as whole numbers that ascend in this order, as far from each other as the values; which are known."""
    codes = order_column(column).codes
    return ~codes if by.descending else codes, has_value(column)


def shift(values: Positions, distance: int) -> Positions:
    """The values so much greater, the greatest or least number where there is no such."""
    if distance >= 0:
        return np.minimum(values, GREATEST - distance) + distance
    return np.maximum(values, LEAST - distance) + distance


def bounds(values: Positions, there: Mask, run: Positions, distance: int, *, behind: bool) -> Positions:
    """For each element with a value, the first one of its run that is `distance` from it, or more.

    With `behind` the first one that is more. Runs ascend, and the known values of a run, which lie side by side. Where
    all of a run are less it is the one behind the last known. For an element without a value it is any number.
    """
    known_at = np.flatnonzero(there)
    if len(known_at) == 0:
        return np.zeros(len(values), dtype=np.int64)
    distinct, codes = np.unique(values[known_at], return_inverse=True)
    wanted = np.searchsorted(distinct, shift(values, distance), side="right" if behind else "left")
    if distance > 0:  # there is no value so great: the bound is behind the greatest that there is
        wanted[values > GREATEST - distance] = len(distinct)
    else:
        wanted[values < LEAST - distance] = 0
    wide, run_of_known = len(distinct) + 1, run[known_at]
    place = np.searchsorted(run_of_known * wide + codes, run * wide + wanted)
    first = np.searchsorted(run_of_known, run)
    stop = np.searchsorted(run_of_known, run, side="right")
    base = known_at[np.minimum(first, len(known_at) - 1)]
    return base + np.clip(place, first, stop) - first
