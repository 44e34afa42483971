"""Whether a series stays where it is: its last third against its middle third. The first third warms up."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How far the last third's median may lie above the middle third's: a share of that, and so much besides."""

    share: float
    slack: float

    def bound(self, middle: float) -> float:
        return middle * (1 + self.share) + self.slack


@dataclass(frozen=True, slots=True)
class Verdict:
    """The medians of both thirds, and whether the last one is within the tolerance."""

    middle: float
    last: float
    bound: float

    @property
    def is_flat(self) -> bool:
        return self.last <= self.bound


def verdict(series: Sequence[float], tolerance: Tolerance) -> Verdict:
    """Raises ValueError where the series is too short to have thirds."""
    third = len(series) // 3
    if third == 0:
        raise ValueError(f"three values or more are needed. values={len(series)}")
    middle, last = median(series[third:-third]), median(series[-third:])
    return Verdict(middle, last, tolerance.bound(middle))
