"""Which runs to merge. A pure choice: `state` carries it out."""

from collections.abc import Sequence
from dataclasses import dataclass

from dagster_ckpt.lsm.levels import levels_of
from dagster_ckpt.protocol.manifest import HashRange, RunRef


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
    depth_min: int = 4
    depth_max: int = 64
    small_rows: int = 32_768
    file_bytes_max: int = 256 << 20


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


@dataclass(frozen=True, slots=True)
class SliceMerge:
    """Move all that the shards show of these hashes, upper runs and bottom alike, down into new bottom files.

    Nothing older is left there, so tombstones go. `rows` is how many there are as far as the choice can tell; `files`
    is into how many files of about the same size they are to be written, so that none grows beyond the limit.
    """

    range: HashRange
    files: int
    rows: int


@dataclass(frozen=True, slots=True)
class TierMerge:
    """Make the newest `runs` of `Levels.upper` one run, newest on top. Older ones are left: tombstones stay."""

    runs: int


def choose_merges(
    lists: Sequence[Sequence[RunRef]], ranges: Sequence[HashRange], limits: CompactionLimits
) -> tuple[SliceMerge | TierMerge, ...]:
    """What to merge of these shards' runs now, to be carried out in this order; empty: nothing."""
    levels = levels_of(lists, ranges)
    if len(levels.upper) < limits.depth_min:
        return ()
    rows = sum(placed.ref.rows for placed in (*levels.upper, *levels.bottom))
    return (SliceMerge(HashRange(ranges[0].lo, ranges[-1].hi), 1, rows),)
