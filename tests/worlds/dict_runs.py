"""Runs that are dicts: what run lists mean, told as simply as can be, to hold the real thing against."""

from collections.abc import Iterable, Sequence

from dagster_ckpt.hash_range import HASH_MAX, HashRange
from dagster_ckpt.ids import Epoch
from dagster_ckpt.lsm.compaction.compaction import CompactionLimits, choose_merges
from dagster_ckpt.lsm.compaction.levels import VisibleRun, split_levels
from dagster_ckpt.lsm.compaction.run_lists import (
    RunLists,
    SliceMerge,
    TierMerge,
    after_merge,
    may_merge,
    reshard_lists,
    with_news,
)
from dagster_ckpt.protocol.manifest.manifest import RunRef

Rows = dict[int, int | None]
"""What a run says of each hash: a value, or None for a tombstone."""


def shard_ranges(shards: int) -> list[HashRange]:
    size = (HASH_MAX + 1) // shards
    return [HashRange(shard * size, (shard + 1) * size - 1) for shard in range(shards)]


def shows(ref: RunRef, hash_: int) -> bool:
    """What the format says of clip and merge range, word by word."""
    if not ref.clip.lo <= hash_ <= ref.clip.hi:
        return False
    if ref.moved_lo <= ref.moved_hi:
        return not ref.moved_lo <= hash_ < ref.moved_hi
    return not (hash_ >= ref.moved_lo or hash_ < ref.moved_hi)


class DictRuns:
    """The run lists of one state table, its files, and what its rows have to be."""

    def __init__(self, ranges: Sequence[HashRange]) -> None:
        self.ranges = ranges
        self.lists: RunLists = ((),) * len(ranges)
        self.files: dict[str, Rows] = {}
        self.rows: dict[int, int] = {}
        self.epoch = 0
        self._versions = 0

    def say(self, hashes: Iterable[int], tombstones: Iterable[int] = ()) -> Rows:
        """New words for some hashes; they count from now on."""
        said: Rows = {}
        for each in hashes:
            self._versions += 1
            said[each] = self.rows[each] = self._versions
        for each in tombstones:
            said[each] = None
            self.rows.pop(each, None)
        return said

    def news(self, shards: range, said: Rows) -> None:
        """A task that works on these shards writes its part of what was said as one file."""
        ranges = self.ranges[shards.start : shards.stop]
        part = HashRange(ranges[0].lo, ranges[-1].hi)
        self._replace(shards, with_news(self._of(shards), ranges, self._written(part, said)))

    def put_on_top(self, shard: int, ref: RunRef) -> None:
        """A run of one shard, as it is."""
        lists = list(self.lists)
        lists[shard] = (ref, *lists[shard])
        self.lists = tuple(lists)

    def reshard(self, shards: int) -> None:
        """Another number of shards: the same runs."""
        self.lists, self.ranges = reshard_lists(self.lists, shards), shard_ranges(shards)

    def compact(self, shards: range, limits: CompactionLimits) -> list[SliceMerge | TierMerge]:
        """What an epoch's task does before it takes rows in."""
        merges = choose_merges(self._of(shards), self.ranges[shards.start : shards.stop], limits)
        for merge in merges:
            self.carry_out(shards, merge)
        return list(merges)

    def carry_out(self, shards: range, merge: SliceMerge | TierMerge) -> None:
        lists, ranges = self._of(shards), self.ranges[shards.start : shards.stop]
        levels = split_levels(lists, ranges)
        if isinstance(merge, TierMerge):
            part = HashRange(ranges[0].lo, ranges[-1].hi)
            outputs = self._written(part, self._newest(levels.upper[: merge.runs], part))
        else:
            newest = self._newest((*levels.upper, *levels.bottom), merge.range)
            live: Rows = {each: value for each, value in sorted(newest.items()) if value is not None}
            pieces = _split(merge.range, list(live), merge.files)
            outputs = [ref for piece in pieces for ref in self._written(piece, live)]
        self._replace(shards, after_merge(lists, ranges, merge, outputs))

    def may_merge(self, shards: range, part: HashRange) -> bool:
        return all(may_merge(self.lists[shard], self.ranges[shard], part) for shard in shards)

    def read(self) -> dict[int, int]:
        """Every row, as a reader finds it who knows nothing of levels."""
        found: dict[int, int] = {}
        for refs, within in zip(self.lists, self.ranges, strict=True):
            words: Rows = {}
            for ref in refs:
                here = {each: value for each, value in self.files[ref.path].items() if within.lo <= each <= within.hi}
                words = {each: value for each, value in here.items() if shows(ref, each)} | words
            found |= {each: value for each, value in words.items() if value is not None}
        return found

    def read_together(self, shards: range) -> dict[int, int]:
        """The rows of these shards, as a task finds them that takes their levels together."""
        ranges = self.ranges[shards.start : shards.stop]
        levels = split_levels(self._of(shards), ranges)
        words = self._newest((*levels.upper, *levels.bottom), HashRange(ranges[0].lo, ranges[-1].hi))
        return {each: value for each, value in words.items() if value is not None}

    def _of(self, shards: range) -> RunLists:
        return self.lists[shards.start : shards.stop]

    def _replace(self, shards: range, lists: RunLists) -> None:
        self.lists = (*self.lists[: shards.start], *lists, *self.lists[shards.stop :])

    def _newest(self, placed: Sequence[VisibleRun], part: HashRange) -> Rows:
        words: Rows = {}
        for each in placed:
            for shown in each.shown:
                for hash_, value in self.files[each.ref.path].items():
                    if max(shown.lo, part.lo) <= hash_ <= min(shown.hi, part.hi):
                        words.setdefault(hash_, value)
        return words

    def _written(self, part: HashRange, said: Rows) -> list[RunRef]:
        rows = {each: value for each, value in sorted(said.items()) if part.lo <= each <= part.hi}
        if not rows:
            return []
        path = f"file {len(self.files)}"
        self.files[path] = rows
        hashes = HashRange(min(rows), max(rows))
        tombstones = sum(value is None for value in rows.values())
        ref = RunRef(path, len(rows), len(rows), "", Epoch(self.epoch), 0, tombstones, hashes, clip=part)
        return [ref]


def _split(part: HashRange, hashes: list[int], files: int) -> list[HashRange]:
    """The range in so many pieces of about equally many rows."""
    cuts = sorted({hashes[len(hashes) * number // files] for number in range(1, files)}) if hashes else []
    starts = [part.lo, *(cut for cut in cuts if cut > part.lo)]
    return [HashRange(lo, hi) for lo, hi in zip(starts, [*(start - 1 for start in starts[1:]), part.hi], strict=True)]
