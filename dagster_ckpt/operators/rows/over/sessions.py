"""Sessions of a partition: of rows in the order of their starts, each starts before all before it have ended."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dagster_ckpt.lsm.columns import concat, take_array
from dagster_ckpt.operators.rows.over.elements import NONE, Elements
from dagster_ckpt.operators.shared.arrays.nulls import has_value, or_null
from dagster_ckpt.operators.shared.arrays.value_order import order_column


@dataclass(frozen=True)
class Sessions:
    """For each element the start of its session, that of the session before it, and the greatest end before it."""

    own: pa.Array
    start_before: pa.Array
    end_before: pa.Array


def sessions_of(rows: Elements, ends: str, carried_starts: pa.Array, carried_ends: pa.Array) -> Sessions:
    """The sessions of rows that begin at the first column of their order, and end at `ends`.

    An end that is null, or before the row's start, is the start; a row without a start is in no session. What is
    carried is the last two of `Sessions` for the first element of each run in the middle; null elsewhere.
    """
    starts, count = rows.column(rows.by[0].name), len(rows.copies)
    every = concat([starts, rows.column(ends), carried_starts, carried_ends])
    there = has_value(every)
    if not there.any():
        nothing = pa.nulls(len(rows.at), starts.type)
        return Sessions(nothing, nothing, nothing)
    order = order_column(take_array(every, np.flatnonzero(there)))
    distinct, inverse = np.unique(order.codes, return_inverse=True)
    codes = np.full(len(every), NONE, dtype=np.int64)
    codes[there] = inverse
    start = codes[:count][rows.at]
    end = np.where(start == NONE, NONE, np.maximum(start, codes[count : 2 * count][rows.at]))
    start_of_run, end_of_run = (each[rows.run] for each in np.split(codes[2 * count :], 2))
    # An end of an earlier session is before all starts of a later one: the greatest of all rows before will do.
    wide = rows.run * (len(distinct) + 1)
    upto = np.maximum(np.maximum.accumulate(end + wide) - wide, end_of_run)
    is_first = rows.places == rows.starts
    end_before = np.where(is_first, end_of_run, np.roll(upto, 1))
    opens = (start != NONE) & ((start > end_before) | (end_before == NONE))
    opened = np.maximum.accumulate(np.where(opens, rows.places, NONE))
    newest = np.where(opened >= rows.starts, start[opened], start_of_run)
    start_before = np.where(is_first, start_of_run, np.roll(newest, 1))
    own = np.where(start == NONE, NONE, newest)
    return Sessions(*(or_null(order.values(distinct[np.maximum(each, 0)]), each != NONE) for each in (
        own, start_before, end_before
    )))  # fmt: skip
