"""The range of event times that steps count with, and which rows are outside of it.

Sources use times such as `Long.MinValue` for "unknown". The bounds of a window around such a time do not fit into 64
bits, nor does the time moved by a join's bound. So a row outside of the range is late whatever the watermark is, and
it does not move the watermark: one broken row would make all later ones late.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dagster_ckpt.lsm.columns import Mask, Positions, flat, mask_of
from dagster_ckpt.operators.operator import NONE_LATE

EVENT_TIME_US_MAX = 1 << 61
"""Some 73,000 years before and after 1970.

The windows and bounds of joins that are added to them have at most half of that (`LENGTH_US_MAX`), so that the
watermark can pass all that waits: it goes as far as `protocol.transitions.edits.WATERMARK_US_MAX`.
"""

LENGTH_US_MAX = 1 << 60
"""36,000 years: the longest window, and the furthest bound of a join."""


def out_of_range(times: Positions) -> Mask:
    """Which of these event times no step counts with."""
    found: Mask = (times < -EVENT_TIME_US_MAX) | (times > EVENT_TIME_US_MAX)
    return found


def late_rows(times: pa.Array, watermark_us: int | None) -> Positions:
    """Which of these event times are before the watermark (None: it has not begun) or out of range, ascending.

    A row without an event time is not among them.
    """
    least_us = -EVENT_TIME_US_MAX if watermark_us is None else max(watermark_us, -EVENT_TIME_US_MAX)
    values = times.view(pa.int64())
    is_late = pc.or_(pc.less(values, least_us), pc.greater(values, EVENT_TIME_US_MAX))
    found: Positions = np.flatnonzero(mask_of(pc.fill_null(is_late, False)))
    return found if len(found) else NONE_LATE


def newest_us(times: pa.Array | pa.ChunkedArray) -> int | None:
    """The greatest of these event times that is in range; None: none is."""
    values = flat(times).view(pa.int64())
    newest: int | None = pc.max(values).as_py()
    if newest is not None and newest > EVENT_TIME_US_MAX:
        newest = pc.max(values.filter(pc.less_equal(values, EVENT_TIME_US_MAX))).as_py()
    return newest if newest is None or newest >= -EVENT_TIME_US_MAX else None
