"""What to merge, and when. A pure choice: `state` carries it out.

The cost of a read grows with each upper run that shows a hash (the depth there), the cost of merging with each row
written. If each epoch moves one slice of the hash range down, and `depth` slices make the whole, then an epoch of `n`
rows over a bottom of `N` writes `N / depth` of them, and searches `depth / 2` upper runs: half of the range was merged
less than that many epochs ago. The sum is least if `depth` is the square root of `2 * merge_cost * N / n`. So it grows
with the square root of the state, and is the same in every epoch. If one run holds the rows of several epochs, these
count as many times less. For small epochs the minimum cost of searching a run (`search_rows`) counts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, sqrt
from statistics import median_low

from dagster_ckpt.hash_range import HashRange
from dagster_ckpt.ids import Epoch
from dagster_ckpt.lsm.compaction.levels import split_levels, upper_count, visible_hashes
from dagster_ckpt.lsm.compaction.run_lists import SliceMerge, TierMerge, after_merge, may_merge
from dagster_ckpt.lsm.compaction.slices import Slice, Stretch, next_slice, rows_in
from dagster_ckpt.protocol.manifest.manifest import RunRef

_EPOCHS = 6
"""So many of the last epochs tell how many rows an epoch brings."""

_RUNS_MAX = 4096
"""How many upper runs a table may have over all shards, each of which has no more than `depth_max`."""
_HASTE_MAX = 1.5
"""How much more is merged while there are too many upper runs."""
_CALM = 0.1
"""The share of upper runs above the target that is tolerated without merging more."""
_EXPIRING_DEPTH_MIN = 2
"""With less, each epoch would write the whole table besides its rows: it is then cheaper to write both at once."""
_EXPIRING_FILES = 4
"""The number of files a slice is written in if rows expire: the next slice rarely ends where a file does, and the moved
rows of a file that it cuts are stored twice."""
_TIER_RATIO = 2
"""How many times larger a run may be than all newer ones together to be merged with them."""


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


@dataclass(frozen=True, slots=True)
class CompactionLimits:
    """When runs are merged.

    `merge_cost` is the cost of merging a row, in searches for a row in one upper run. Each run searched has a fixed
    cost of `search_rows` searches, and a merge that of merging `slice_rows_min` or `slice_bytes_min`: slices are no
    smaller. The depth stays between `depth_min` and `depth_max`; see `limits_for`. A run with fewer than `small_rows`
    and `small_bytes`, and less than `small_share` of the bottom, is small; `tier_runs` small runs of similar size are
    merged into one. A file has at most about `file_bytes_max`: an Arrow string column holds 2 GiB.

    If rows expire, dead rows must stay a small part of the whole: upper runs have at most about `upper_share` of the
    bottom's rows, and a run is small below `expiring_small_share`. This does not apply below `expiring_rows_min` rows
    in all: dead rows there cost less than a merge.
    """

    merge_cost: float = 8.0
    search_rows: int = 1 << 13
    depth_min: int = 4
    depth_max: int = 64
    small_rows: int = 1 << 14
    small_bytes: int = 1 << 24
    small_share: float = 1 / 8
    tier_runs: int = 6
    slice_rows_min: int = 1 << 16
    slice_bytes_min: int = 1 << 24
    file_bytes_max: int = 1 << 28
    upper_share: float = 1 / 6
    expiring_small_share: float = 1 / 40
    expiring_rows_min: int = 1 << 13


def limits_for(shards: int, limits: CompactionLimits) -> CompactionLimits:
    """The limits for a stream of `shards` shards: with many shards, each may have fewer runs."""
    return replace(limits, depth_max=min(limits.depth_max, max(2 * limits.depth_min, _RUNS_MAX // shards)))


def is_rewritten(
    lists: Sequence[Sequence[RunRef]], ranges: Sequence[HashRange], new_rows: int, limits: CompactionLimits
) -> bool:
    """Whether an epoch of `new_rows` rows rewrites the whole table, with its rows and without the expired ones.

    If an epoch's rows are a large part of the table, that costs no more than slices do, and leaves no dead rows.
    """
    rows = _row_count(lists, ranges)
    if rows + new_rows < limits.expiring_rows_min and max(map(len, lists), default=0) < limits.depth_min:
        return False
    return new_rows > 0 and rows * limits.upper_share <= new_rows


def choose_merges(
    lists: Sequence[Sequence[RunRef]], ranges: Sequence[HashRange], limits: CompactionLimits, *, expiring: bool = False
) -> tuple[SliceMerge | TierMerge, ...]:
    """What to merge of these shards' runs now, in this order; empty: nothing.

    `expiring`: the table's rows expire.

    **Slices.** Once there are enough upper runs, each epoch merges one slice; the next continues where it ended, and
    wraps around. While there are too many upper runs, slices are up to 1.5 times as large. If they are more than twice
    the depth over all hashes, they are merged at once, in several slices: intake waits.

    **Tiers.** The newest runs do not count while they are small: few rows each would rewrite a slice. They are merged
    with each other until they are no longer small. The one `TierMerge` comes last, and has no slice's output among its
    runs.
    """
    if max(map(len, lists), default=0) < 2:
        return ()
    expiring = expiring and _row_count(lists, ranges) >= limits.expiring_rows_min
    small_share = limits.expiring_small_share if expiring else limits.small_share
    shards, small = shard_depths(lists, ranges, Small(limits.small_rows, limits.small_bytes), small_share)
    pace = _pace(shards, limits, expiring=expiring)
    rows_max = pace.rows * min(_HASTE_MAX, max(1.0, mean_depth(shards) / pace.mean_depth - _CALM))
    rows = 0
    merges: list[SliceMerge | TierMerge] = []
    while (mean := mean_depth(shards)) >= pace.mean_depth:
        stalled = mean > 2 * pace.depth
        if rows > rows_max / 2 and not stalled:
            break
        stretches = _stretches(shards, pace.depth)
        piece = next_slice(stretches, rows_max if stalled else rows_max - rows)
        if piece is None:
            break
        files_min = int(piece.rows / limits.expiring_rows_min) if expiring else 1
        merge = _legal(piece, lists, ranges, stretches[0].within, limits, min(files_min, _EXPIRING_FILES))
        merge = replace(merge, urgent=rows > rows_max / 2)
        merges.append(merge)
        rows += merge.rows
        before, lists = lists, after_merge(lists, ranges, merge, [_foreseen(merge, piece)])
        shards = [
            known if refs is same else shard_depth(refs, known.within, small)
            for known, refs, same in zip(shards, lists, before, strict=True)
        ]
    tier = _tier(lists, ranges, small, limits)
    return (*merges, tier) if tier else tuple(merges)


def _row_count(lists: Sequence[Sequence[RunRef]], ranges: Sequence[HashRange]) -> float:
    """How many rows the runs show, including those that newer ones hide, and expired ones of a run that has others."""
    return sum(rows_shown(ref, within) for refs, within in zip(lists, ranges, strict=True) for ref in refs)


@dataclass(frozen=True, slots=True)
class _Pace:
    """The cheapest pace: the upper runs where the next slice is, those on average, and the rows of a slice."""

    depth: int
    mean_depth: float
    rows: float


def _pace(shards: Sequence[ShardDepth], limits: CompactionLimits, *, expiring: bool) -> _Pace:
    run_rows = sum(shard.run_rows for shard in shards)
    # Shards that get no rows are not merged, and do not count.
    bottom_rows = sum(shard.bottom_rows for shard in shards if shard.depth)
    if not run_rows:
        return _Pace(limits.depth_min, limits.depth_min, limits.slice_rows_min)
    upper = [ref for shard in shards for ref in shard.upper]
    rows_per_byte = sum(ref.rows for ref in upper) / max(1, sum(ref.bytes for ref in upper))
    rows_min = min(limits.slice_rows_min, limits.slice_bytes_min * rows_per_byte)
    epoch_rows = sum(shard.epoch_rows for shard in shards)
    worth = 2 * limits.merge_cost * epoch_rows / (epoch_rows + limits.search_rows)
    best = round(sqrt(worth * max(bottom_rows, rows_min) / run_rows))
    depth = max(limits.depth_min, min(best, limits.depth_max))
    if expiring:
        # Moved rows are stored twice until the whole run is moved, and a slice keeps expired rows until its turn.
        depth = min(depth, max(_EXPIRING_DEPTH_MIN, round(limits.upper_share * bottom_rows / run_rows)))
    rows = max(
        (bottom_rows / depth + run_rows) * epoch_rows / run_rows,
        rows_min,
        # Otherwise the bottom would have too many files.
        bottom_rows / (2 * limits.depth_max),
    )
    # The depth grows from zero just after the last slice to `depth` at the next one, a slice at a time. A slice is
    # merged slightly earlier: an occasional epoch without a merge would make the other merges larger.
    share = min(1.0, rows / (bottom_rows + depth * run_rows))
    return _Pace(depth, max(0.5, (depth * (1 + share) - 1) / 2), rows)


def _stretches(shards: Sequence[ShardDepth], depth: int) -> list[Stretch]:
    """Where the next slice is taken from: the deepest shard and those after it."""
    first = max(range(len(shards)), key=lambda index: (shards[index].depth, not shards[index].not_begun, -index))
    stretches = [shards[first].ahead()]
    if stretches[0].hi == shards[first].within.hi:
        for shard in shards[first + 1 :]:
            if not shard.not_begun or 2 * shard.depth < depth:
                break
            stretches.append(shard.ahead())
    return stretches


def _legal(
    piece: Slice,
    lists: Sequence[Sequence[RunRef]],
    ranges: Sequence[HashRange],
    deepest: HashRange,
    limits: CompactionLimits,
    files_min: int,
) -> SliceMerge:
    """The slice, or all of the deepest shard if the slice would leave a run in too many pieces for its reference.

    The lists that we write never require that.
    """
    legal = all(may_merge(refs, within, piece.range) for refs, within in zip(lists, ranges, strict=True))
    files = max(1, files_min, ceil(piece.bytes / limits.file_bytes_max))
    return SliceMerge(piece.range if legal else deepest, files, round(piece.rows))


def _foreseen(merge: SliceMerge, piece: Slice) -> RunRef:
    """The output of the merge, as far as the choice needs it."""
    return RunRef("", merge.rows, int(piece.bytes), "", Epoch(0), hashes=merge.range, clip=merge.range)


def _tier(
    lists: Sequence[Sequence[RunRef]], ranges: Sequence[HashRange], small: Small, limits: CompactionLimits
) -> TierMerge | None:
    """The newest small runs, as far down as their sizes are similar, once there are enough."""
    if not any(all(map(small.fits, refs[:2])) for refs in lists if len(refs) > 2):
        return None
    rows = 0.0
    count = 0
    for placed in split_levels(lists, ranges).upper:
        more = sum(rows_in(placed.ref, each.lo, each.hi) for each in placed.shown)
        # A burst is merged in parts. A part is no longer small: parts that were would pile up, and count nowhere.
        enough = count >= limits.tier_runs and rows >= small.rows
        if not small.fits(placed.ref) or enough or (count > 0 and more > _TIER_RATIO * rows):
            break
        rows, count = rows + more, count + 1
    return TierMerge(count) if count >= limits.tier_runs else None
