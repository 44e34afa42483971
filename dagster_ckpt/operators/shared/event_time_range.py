"""The range of valid event times, and the rows outside it.

Sources use times such as `Long.MinValue` for "unknown". The bounds of a window around such a time overflow 64 bits, and
so does the time plus a join's bound. So a row outside the range is always late, and it does not advance the watermark:
one broken row would make all later ones late.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dagster_ckpt.lsm.columns import Mask, Positions, flat, to_mask
from dagster_ckpt.operators.operator import NONE_LATE

EVENT_TIME_US_MAX = 1 << 61
"""Some 73,000 years before and after 1970.

Windows and join bounds, which are added to event times, are at most half as long (`LENGTH_US_MAX`), so that the
watermark can pass all waiting rows: its maximum is `protocol.transitions.edits.WATERMARK_US_MAX`.
"""

LENGTH_US_MAX = 1 << 60
"""36,000 years: the longest window, and the largest bound of a join."""


def out_of_range(times: Positions) -> Mask:
    """Which of these event times are outside the range."""
    found: Mask = (times < -EVENT_TIME_US_MAX) | (times > EVENT_TIME_US_MAX)
    return found


def late_rows(times: pa.Array, watermark_us: int | None) -> Positions:
    """Positions of the event times before the watermark (None: there is none yet) or out of range, ascending.

    Null is not among them.
    """
    least_us = -EVENT_TIME_US_MAX if watermark_us is None else max(watermark_us, -EVENT_TIME_US_MAX)
    values = times.view(pa.int64())
    is_late = pc.or_(pc.less(values, least_us), pc.greater(values, EVENT_TIME_US_MAX))
    found: Positions = np.flatnonzero(to_mask(pc.fill_null(is_late, False)))
    return found if len(found) else NONE_LATE


def newest_us(times: pa.Array | pa.ChunkedArray) -> int | None:
    """The greatest of these event times in range; None if there is none."""
    values = flat(times).view(pa.int64())
    newest: int | None = pc.max(values).as_py()
    if newest is not None and newest > EVENT_TIME_US_MAX:
        newest = pc.max(values.filter(pc.less_equal(values, EVENT_TIME_US_MAX))).as_py()
    return newest if newest is None or newest >= -EVENT_TIME_US_MAX else None
