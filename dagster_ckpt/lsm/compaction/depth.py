"""How many upper runs some shards have, and how many rows are in them: the input of the choice of merges."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median_low

from dagster_ckpt.hash_range import HashRange
from dagster_ckpt.lsm.compaction.levels import upper_count, visible_hashes
from dagster_ckpt.lsm.compaction.slices import Stretch, rows_in
from dagster_ckpt.protocol.manifest.manifest import RunRef

_EPOCHS = 6
"""So many of the last epochs tell how many rows an epoch brings."""


@dataclass(frozen=True, slots=True)
class Small:
    """A run is small with fewer rows than this and fewer bytes."""

    rows: float
    bytes: int

    def fits(self, ref: RunRef) -> bool:
        return ref.rows < self.rows and ref.bytes < self.bytes


@dataclass(frozen=True, slots=True)
class ShardDepth:
    """The runs of a shard, and their sizes.

    `cursor` is where its next slice begins. `depth` is how many upper runs count; `run_rows` how many rows each of them
    had at first, on average, and `epoch_rows` how many came in an epoch; `shown_rows` how many all of them still show.
    `bottom_rows` counts the bottom.
    """

    within: HashRange
    upper: Sequence[RunRef]
    bottom: Sequence[RunRef]
    cursor: int
    depth: float
    run_rows: float
    epoch_rows: float
    shown_rows: float
    bottom_rows: float

    @property
    def not_begun(self) -> bool:
        """Whether the next slice begins where the shard does."""
        return self.cursor == self.within.lo

    def ahead(self) -> Stretch:
        """The range from the cursor on if it has upper runs; else the range before it, after wrapping around."""
        lo, hi = self.cursor, self.within.hi
        if not any(last >= lo for ref in self.upper for _, last in visible_hashes(ref, self.within)):
            lo, hi = self.within.lo, self.cursor - 1
        return Stretch(lo, hi, self.within, self.upper, self.bottom)


def rows_shown(ref: RunRef, within: HashRange) -> float:
    """About how many rows of the file a shard of this hash range shows, including rows that newer ones hide."""
    return sum(rows_in(ref, lo, hi) for lo, hi in visible_hashes(ref, within))


def shard_depths(
    lists: Sequence[Sequence[RunRef]], ranges: Sequence[HashRange], small: Small, small_share: float
) -> tuple[list[ShardDepth], Small]:
    """The depth of each shard, and the size below which a run of theirs is small: less than a share of the bottom."""
    uppers = [upper_count(refs, within) for refs, within in zip(lists, ranges, strict=True)]
    bottom_rows = [
        sum(rows_shown(ref, within) for ref in refs[upper:])
        for refs, within, upper in zip(lists, ranges, uppers, strict=True)
    ]
    small = Small(min(small.rows, sum(bottom_rows) * small_share), small.bytes)
    shards = [
        _depth_of(refs[:upper], refs[upper:], within, rows, small)
        for refs, within, upper, rows in zip(lists, ranges, uppers, bottom_rows, strict=True)
    ]
    return shards, small


def shard_depth(refs: Sequence[RunRef], within: HashRange, small: Small) -> ShardDepth:
    """The depth of one shard; `small` defines which runs are small."""
    upper = upper_count(refs, within)
    bottom_rows = sum(rows_shown(ref, within) for ref in refs[upper:])
    return _depth_of(refs[:upper], refs[upper:], within, bottom_rows, small)


def mean_depth(shards: Sequence[ShardDepth]) -> float:
    """How many upper runs a hash is in, on average."""
    run_rows = sum(shard.run_rows for shard in shards)
    return sum(shard.shown_rows for shard in shards) / run_rows if run_rows else 0.0


def _depth_of(
    upper: Sequence[RunRef], bottom: Sequence[RunRef], within: HashRange, bottom_rows: float, small: Small
) -> ShardDepth:
    all_rows = shown_rows = 0.0
    counted: list[tuple[RunRef, int, int]] = []
    for ref in upper:
        if (counted or not small.fits(ref)) and (rows := rows_shown(ref, within)):
            counted.append((ref, *ref.clip.intersect(within)))
            shown_rows += rows
    # Several files with a clip each may be one run in pieces: together they count as one. Not relative to the whole
    # hash range, because a timeline has only the part that has not expired.
    width = max((hi for _, _, hi in counted), default=0) - min((lo for _, lo, _ in counted), default=0) + 1
    runs: dict[int, float] = {}
    of_epochs: dict[int, float] = {}
    for ref, lo, hi in counted:
        rows = rows_in(ref, lo, hi)
        runs[ref.epoch] = runs.get(ref.epoch, 0.0) + (hi - lo + 1) / width
        of_epochs[ref.epoch] = of_epochs.get(ref.epoch, 0.0) + rows
        all_rows += rows
    depth = sum(runs.values())
    run_rows = all_rows / depth if depth else 0.0
    ends = (ref.moved_hi for ref in upper if ref.moved_lo != ref.moved_hi)
    cursor = next(ends, within.lo)
    return ShardDepth(
        within=within,
        upper=upper,
        bottom=bottom,
        # In a list made for another hash range, merge ranges may end outside this one.
        cursor=cursor if within.lo <= cursor <= within.hi else within.lo,
        depth=depth,
        run_rows=run_rows,
        epoch_rows=_rows_an_epoch(of_epochs, runs, run_rows, upper[0].epoch) if runs else 0.0,
        shown_rows=shown_rows,
        bottom_rows=bottom_rows,
    )


def _rows_an_epoch(rows: Mapping[int, float], runs: Mapping[int, float], run_rows: float, newest: int) -> float:
    """How many rows a typical one of the last epochs wrote, from the rows and runs of each epoch that has any.

    Only the last epochs count: a bulk load of long ago says nothing about today's. But no more than are in as many
    average runs as an epoch writes: where epochs grow, slices grow with the runs. If small runs of several epochs were
    merged, these count as many times less.
    """
    last = sorted(rows, reverse=True)[:_EPOCHS]
    share = len(last) / max(len(last), newest - last[-1] + 1)
    of_one = min(median_low(rows[epoch] for epoch in last), run_rows * max(1.0, median_low(runs.values())))
    return of_one * share
