"""The time axis of an interval join: each row's place, its reach, and the buckets it reaches into."""

from dataclasses import dataclass

import numpy as np

from dagster_ckpt.lsm.columns import Positions
from dagster_ckpt.operators.joins.join_types import LEFT

_LEAST, _GREATEST = -(2**63), 2**63 - 1
_WIDTHS = 2
"""The width of a bucket as a multiple of a row's reach: half of all rows reach into one bucket, the others into two.

Part of the state's format. Measured with 0.2, 1 and 3 matches for each row: 1 and 4 are no better.
"""


@dataclass(frozen=True)
class Interval:
    """A left row at `t` matches right rows in `[t + lower_us, t + upper_us]`.

    On the axis the right rows are moved by `-lower_us`: a left row at x matches right rows in `[x, x + width_us]`.
    Times never wrap round: they saturate at the ends of 64 bits.
    """

    lower_us: int
    upper_us: int

    @property
    def width_us(self) -> int:
        """How far a row reaches, in one direction."""
        return self.upper_us - self.lower_us

    @property
    def bucket_us(self) -> int:
        """The width of a bucket: at least the reach of a row."""
        return max(1, _WIDTHS * self.width_us)

    @property
    def horizon_us(self) -> int:
        """How far the watermark must pass a row's event time until only late rows could match it."""
        return max(self.upper_us, -self.lower_us, 0) + 1

    def places(self, number: int, times: Positions) -> Positions:
        """The places on the axis of rows of this input with these event times."""
        return times if number == LEFT else shift(times, -self.lower_us)

    def reach(self, number: int, places: Positions) -> tuple[Positions, Positions]:
        """The inclusive ranges on the axis in which rows of the other input match these rows."""
        if number == LEFT:
            return places, shift(places, self.width_us)
        return shift(places, -self.width_us), places

    def buckets(self, places: Positions) -> Positions:
        """The buckets of these places."""
        buckets: Positions = np.floor_divide(places, self.bucket_us)
        return buckets

    def until_us(self, number: int, watermark_us: int) -> int:
        """Rows of this input before this moment can be dropped: all rows of the other that match them would be late."""
        until = watermark_us - self.upper_us if number == LEFT else watermark_us + self.lower_us
        return min(max(until, _LEAST), _GREATEST)


def shift(times: Positions, by: int) -> Positions:
    """The times plus `by`, saturating."""
    if by == 0:
        return times
    within: Positions = np.clip(times, _LEAST - min(by, 0), _GREATEST - max(by, 0)) + by
    return within
