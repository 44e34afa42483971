"""What is said of the seconds that triggers took."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np


def p50(values: Sequence[float]) -> float:
    return float(median(values))


def p95(values: Sequence[float]) -> float:
    """Between the two nearest values, in proportion."""
    return float(np.percentile(values, 95))


@dataclass(frozen=True)
class Timing:
    """Seconds of whole triggers of `rows` rows, round by round."""

    rows: int
    rounds: Sequence[Sequence[float]]

    @property
    def seconds(self) -> list[float]:
        return [one for turn in self.rounds for one in turn]

    @property
    def rows_per_second(self) -> float:
        """All rows of a round over all its time, slow triggers too; of the rounds the median."""
        return p50([self.rows * len(turn) / sum(turn) for turn in self.rounds])


def times_as_fast(mine: Timing, theirs: Timing) -> float:
    """Rows a second against rows a second, round by round; of the rounds the median."""
    pairs = zip(mine.rounds, theirs.rounds, strict=True)
    return p50([(sum(their) / len(their)) / (sum(my) / len(my)) for my, their in pairs])
