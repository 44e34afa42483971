"""Which runs to merge. A pure choice: `state` carries it out."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RunSize:
    """What the choice knows of a run."""

    rows: int
    bytes: int
    level: int


@dataclass(frozen=True, slots=True)
class CompactionLimits:
    """When runs are merged: `runs_min` or more at once, sizes within `ratio` of each other, at most `bytes_max` in all.

    `bytes_max` also keeps a merge's columns below the 2 GiB that an Arrow string column can hold.
    """

    runs_min: int = 8
    ratio: int = 1
    bytes_max: int = 1 << 30


@dataclass(frozen=True, slots=True)
class Merge:
    """Make the newest `runs` runs into one of this level. `to_bottom`: none is older, so tombstones may go."""

    runs: int
    level: int
    to_bottom: bool


def choose(runs: Sequence[RunSize], limits: CompactionLimits) -> Merge | None:
    """What to merge of these runs, newest first; None: nothing yet.

    Sizes grow geometrically with age: the newest runs are merged as far down as the next one is at most `ratio` times
    all before it. So a row is rewritten a number of times that grows with the logarithm of the state, and so does the
    number of runs.

    A limit of this release: a run larger than `bytes_max` is never merged again, and two that are together larger are
    never merged with each other. So such runs pile up, each lookup asks all of them, and the tombstones above them and
    in them stay, until runs are merged in slices.
    """
    rows = bytes_ = count = 0
    for run in runs:
        fits = bytes_ + run.bytes <= limits.bytes_max
        if not fits or (count > 0 and run.rows > limits.ratio * rows):
            break
        rows, bytes_, count = rows + run.rows, bytes_ + run.bytes, count + 1
    if count < max(limits.runs_min, 2):
        return None
    level = 1 + max(run.level for run in runs[:count])
    return Merge(count, level, to_bottom=count == len(runs))
