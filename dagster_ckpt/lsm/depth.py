"""How many runs some shards have above each other, and how many rows are in them: what a choice of merges goes by."""

from collections.abc import Sequence
from dataclasses import dataclass

from dagster_ckpt.lsm.levels import shown, upper_count
from dagster_ckpt.lsm.slices import Stretch, rows_in
from dagster_ckpt.protocol.manifest import HashRange, RunRef

_SMALL_SHARE = 1 / 8
"""From which share of the bottom on a run is not small, however few rows it has."""


@dataclass(frozen=True, slots=True)
class Small:
    """A run is small with fewer rows than this and fewer bytes."""

    rows: float
    bytes: int

    def fits(self, ref: RunRef) -> bool:
        return ref.rows < self.rows and ref.bytes < self.bytes


@dataclass(frozen=True, slots=True)
class ShardDepth:
    """What a shard has.

    `cursor` is where its next slice begins. `depth` is how many upper runs count; `run_rows` how many rows each of them
    had to begin with, on average; `shown_rows` how many all of them still show. `bottom_rows` counts the bottom.
    """

    within: HashRange
    upper: Sequence[RunRef]
    bottom: Sequence[RunRef]
    cursor: int
    depth: int
    run_rows: float
    shown_rows: float
    bottom_rows: float

    @property
    def not_begun(self) -> bool:
        """Whether the next slice begins where the shard does."""
        return self.cursor == self.within.lo

    def ahead(self) -> Stretch:
        """From the cursor on, as far as there are upper runs; else what comes after going round."""
        lo, hi = self.cursor, self.within.hi
        if not any(last >= lo for ref in self.upper for _, last in shown(ref, self.within)):
            lo, hi = self.within.lo, self.cursor - 1
        return Stretch(lo, hi, self.within, self.upper, self.bottom)


def depths_of(
    lists: Sequence[Sequence[RunRef]], ranges: Sequence[HashRange], small: Small
) -> tuple[list[ShardDepth], Small]:
    """What each of the shards has, and below which size a run of theirs is small: never much of the bottom."""
    split = [(refs, upper_count(refs, within), within) for refs, within in zip(lists, ranges, strict=True)]
    bottom_rows = [sum(_rows_shown(ref, within) for ref in refs[upper:]) for refs, upper, within in split]
    small = Small(min(small.rows, sum(bottom_rows) * _SMALL_SHARE), small.bytes)
    shards = [
        _depth_of(refs[:upper], refs[upper:], within, rows, small)
        for (refs, upper, within), rows in zip(split, bottom_rows, strict=True)
    ]
    return shards, small


def mean_depth(shards: Sequence[ShardDepth]) -> float:
    """How many upper runs a hash is in, on average."""
    run_rows = sum(shard.run_rows for shard in shards)
    return sum(shard.shown_rows for shard in shards) / run_rows if run_rows else 0.0


def _depth_of(
    upper: Sequence[RunRef], bottom: Sequence[RunRef], within: HashRange, bottom_rows: float, small: Small
) -> ShardDepth:
    depth = 0
    all_rows = shown_rows = 0.0
    for ref in upper:
        if depth == 0 and small.fits(ref):
            continue
        if rows := _rows_shown(ref, within):
            depth += 1
            shown_rows += rows
            all_rows += rows_in(ref, max(ref.clip.lo, within.lo), min(ref.clip.hi, within.hi))
    ends = (ref.moved_hi for ref in upper if ref.moved_lo != ref.moved_hi)
    cursor = next(ends, within.lo)
    return ShardDepth(
        within=within,
        upper=upper,
        bottom=bottom,
        # A list that was made for another hash range may have its merge ranges end outside of this one.
        cursor=cursor if within.lo <= cursor <= within.hi else within.lo,
        depth=depth,
        run_rows=all_rows / depth if depth else 0.0,
        shown_rows=shown_rows,
        bottom_rows=bottom_rows,
    )


def _rows_shown(ref: RunRef, within: HashRange) -> float:
    return sum(rows_in(ref, lo, hi) for lo, hi in shown(ref, within))
