"""An interval join's axis: where each row lies on it, what it reaches, and in which buckets that is."""

from dataclasses import dataclass

import numpy as np

from dagster_ckpt.lsm.columns import Positions
from dagster_ckpt.operators.joins.join_types import LEFT

_LEAST, _GREATEST = -(2**63), 2**63 - 1
_WIDTHS = 2
"""A bucket is so many times as wide as a row reaches: half of all rows reach into one bucket, the others into two.

It is part of the state's format. Measured with a fifth of a match, one, and three for each row: 1 and 4 are no better.
"""


@dataclass(frozen=True)
class Interval:
    """A left row at `t` matches right rows in `[t + lower_us, t + upper_us]`.

    On the axis the right rows are moved by `-lower_us`: a left row at x matches right rows in `[x, x + width_us]`.
    Nothing here wraps round: what would lie beyond the last moment lies at the last moment.
    """

    lower_us: int
    upper_us: int

    @property
    def width_us(self) -> int:
        """How far a row reaches, to one side."""
        return self.upper_us - self.lower_us

    @property
    def bucket_us(self) -> int:
        """The width of a bucket: never less than what a row reaches."""
        return max(1, _WIDTHS * self.width_us)

    @property
    def horizon_us(self) -> int:
        """How far the watermark must pass a row's event time until nothing that is not late can match it."""
        return max(self.upper_us, -self.lower_us, 0) + 1

    def places(self, number: int, times: Positions) -> Positions:
        """Where rows of this input with these event times lie on the axis."""
        return times if number == LEFT else moved(times, -self.lower_us)

    def reach(self, number: int, places: Positions) -> tuple[Positions, Positions]:
        """From where to where on the axis, inclusive, lie the rows of the other input that match those of this one."""
        if number == LEFT:
            return places, moved(places, self.width_us)
        return moved(places, -self.width_us), places

    def buckets(self, places: Positions) -> Positions:
        """The buckets in which these places lie."""
        buckets: Positions = np.floor_divide(places, self.bucket_us)
        return buckets

    def until_us(self, number: int, watermark_us: int) -> int:
        """Rows of this input before that moment can be let go: all rows of the other that match them would be late."""
        until = watermark_us - self.upper_us if number == LEFT else watermark_us + self.lower_us
        return min(max(until, _LEAST), _GREATEST)


def moved(times: Positions, by: int) -> Positions:
    """The times so much later, or earlier."""
    if by == 0:
        return times
    within: Positions = np.clip(times, _LEAST - min(by, 0), _GREATEST - max(by, 0)) + by
    return within
