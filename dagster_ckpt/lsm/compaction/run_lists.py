"""Run lists after a write, a merge or a reshard: new lists, which leave the old ones unchanged.

`compaction` chooses merges, `state` carries them out. For another number of shards no run is read or written: a shard
is a range of hashes. If one is split, each new one gets the runs that show hashes of it, with a clip; if shards are
joined, the new one gets the runs of all, newest first.

Compaction may have moved down a different part of a run in each of the old shards, but a reference has only one merge
range. Then the new shard names the run more than once, in adjacent references, each with the clip of an old shard: no
clip overlaps another. Merging reduces them in time, as it does with all runs.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from dagster_ckpt.hash_range import HashRange, coalesce, shard_range, split
from dagster_ckpt.lsm.compaction.levels import in_one_order, upper_count, visible_hashes
from dagster_ckpt.protocol.manifest.manifest import RunRef


@dataclass(frozen=True, slots=True)
class SliceMerge:
    """Move all rows of these hashes that the shards show, upper runs and bottom alike, down into new bottom files.

    Nothing older is left there, so tombstones are dropped. `rows` is about how many rows are read; `files` the number
    of files to write, of about equal size, so that none exceeds the limit. `urgent`: it is more than an epoch's share,
    because there are far too many upper runs, and the intake of rows waits for it.
    """

    range: HashRange
    files: int
    rows: int
    urgent: bool = False


@dataclass(frozen=True, slots=True)
class TierMerge:
    """Merge the newest `runs` of `Levels.upper` into one, the newest upper run. Older runs remain: tombstones stay."""

    runs: int


RunLists = tuple[tuple[RunRef, ...], ...]
"""Runs per shard, newest first."""


def with_news(lists: Sequence[Sequence[RunRef]], ranges: Sequence[HashRange], news: Sequence[RunRef]) -> RunLists:
    """The lists with new runs on top. `news` are newest first.

    The clip of a new run is the range it was written for, not the hashes it has: a task's whole hash range. Each shard
    gets its part of the clip, and no reference if the file cannot have a row of it.
    """
    return tuple((*_of_shard(news, within), *refs) for refs, within in zip(lists, ranges, strict=True))


def after_merge(
    lists: Sequence[Sequence[RunRef]],
    ranges: Sequence[HashRange],
    merge: SliceMerge | TierMerge,
    outputs: Sequence[RunRef],
) -> RunLists:
    """The lists after `merge` was carried out on exactly these; `outputs` are what it wrote.

    A `SliceMerge` writes any number of files with disjoint clips within its range. A `TierMerge` writes any number,
    newest first, the clip of each as in `with_news`. Each shard gets its part of a file.
    """
    if isinstance(merge, TierMerge):
        return _after_tier_merge(lists, ranges, merge, outputs)
    return tuple(
        _after_slice_merge(refs, within, merge.range, outputs) for refs, within in zip(lists, ranges, strict=True)
    )


def may_merge(refs: Sequence[RunRef], within: HashRange, part: HashRange) -> bool:
    """Whether a shard's rows of these hashes may be moved down: the rest of each run must fit in one reference."""
    moved = part.intersect(within)
    return moved.is_empty or all(len(_without(visible_hashes(ref, within), moved)) <= 2 for ref in refs)


def _after_tier_merge(
    lists: Sequence[Sequence[RunRef]], ranges: Sequence[HashRange], merge: TierMerge, outputs: Sequence[RunRef]
) -> RunLists:
    uppers = [
        [ref for ref in refs[: upper_count(refs, within)] if visible_hashes(ref, within)]
        for refs, within in zip(lists, ranges, strict=True)
    ]
    order = in_one_order(uppers)
    merged = set(chain.from_iterable(order[: merge.runs]))
    rest = [[ref for ref in refs if (index, ref) not in merged] for index, refs in enumerate(lists)]
    return with_news(rest, ranges, outputs)


def _after_slice_merge(
    refs: Sequence[RunRef], within: HashRange, part: HashRange, outputs: Sequence[RunRef]
) -> tuple[RunRef, ...]:
    merged = part.intersect(within)
    if merged.is_empty:
        return tuple(refs)
    depth = upper_count(refs, within)
    upper = [_move_down(ref, within, merged) for ref in refs[:depth]]
    bottom = [_cut(ref, within, merged) for ref in refs[depth:]]
    slices = [ref for ref in bottom if ref is not None] + _of_shard(outputs, within)
    return (*(ref for ref in upper if ref is not None), *sorted(slices, key=lambda ref: ref.clip.lo))


def _move_down(ref: RunRef, within: HashRange, part: HashRange) -> RunRef | None:
    """An upper run after its rows of these hashes were moved down; None: it no longer shows anything.

    Its merge range then ends where the shard's merging has stopped, so that the next merge continues from there.
    """
    before = visible_hashes(ref, within)
    left = _without(before, part)
    if not left:
        return None
    nothing_moved = ref.moved_lo == ref.moved_hi
    if nothing_moved and left == before:
        return ref
    moved_lo = part.lo if nothing_moved else ref.moved_lo
    moved = replace(ref, moved_lo=moved_lo, moved_hi=within.lo if part.hi == within.hi else part.hi + 1)
    return moved if visible_hashes(moved, within) == left else _clip(ref, left)


def _cut(ref: RunRef, within: HashRange, part: HashRange) -> RunRef | None:
    """A run of the bottom after its rows of these hashes were merged; None: it no longer shows anything."""
    if ref.clip.intersect(part).is_empty:
        return ref
    left = _without(visible_hashes(ref, within), part)
    return _clip(ref, left) if left else None


def _clip(ref: RunRef, left: Sequence[HashRange]) -> RunRef:
    """The run showing only these hashes."""
    assert len(left) <= 2, "a merge leaves no more of a run than fits in one reference"
    clip = HashRange(left[0].lo, left[-1].hi)
    if len(left) == 1:
        return replace(ref, clip=clip, moved_lo=0, moved_hi=0)
    return replace(ref, clip=clip, moved_lo=left[0].hi + 1, moved_hi=left[1].lo)


def _without(pieces: Sequence[HashRange], part: HashRange) -> tuple[HashRange, ...]:
    """Ascending disjoint ranges without these hashes."""
    return tuple(rest for piece in pieces for rest in piece.subtract(part))


def _of_shard(files: Sequence[RunRef], within: HashRange) -> list[RunRef]:
    """A shard's references to the files, of these, that may have rows of it."""
    return [ref.within(within) for ref in files if visible_hashes(ref, within)]


def reshard_lists(lists: Sequence[Sequence[RunRef]], shards: int) -> RunLists:
    """The lists of `shards` shards that show the same rows in the same order as these; both are powers of two."""
    before = len(lists)
    within = split(shards)
    if shards >= before:
        return tuple(tuple(_of_shard(lists[shard * before // shards], each)) for shard, each in enumerate(within))
    joined = before // shards
    own = [_of_shard(refs, shard_range(shard, before)) for shard, refs in enumerate(lists)]
    return tuple(_join(own[shard * joined : (shard + 1) * joined], shard * joined, before) for shard in range(shards))


def _join(lists: Sequence[Sequence[RunRef]], first: int, of: int) -> tuple[RunRef, ...]:
    """One list for adjacent shards, from `first` of `of`: all upper runs, then all of the bottom."""
    depths = [upper_count(refs, shard_range(first + index, of)) for index, refs in enumerate(lists)]
    groups = in_one_order([refs[:depth] for refs, depth in zip(lists, depths, strict=True)])
    upper = ((ref for _, ref in group) for group in groups)
    bottom = (refs[depth:] for refs, depth in zip(lists, depths, strict=True))
    return (*chain.from_iterable(map(_as_few, upper)), *_as_few(chain.from_iterable(bottom)))


def _as_few(refs: Iterable[RunRef]) -> Iterator[RunRef]:
    """These references, with adjacent ones to the same rows joined if one reference can show what both do."""
    last: RunRef | None = None
    for ref in refs:
        one = None if last is None else _as_one(last, ref)
        if last is not None and one is None:
            yield last
        last = ref if one is None else one
    if last is not None:
        yield last


def _as_one(one: RunRef, other: RunRef) -> RunRef | None:
    clip = HashRange(one.clip.lo, other.clip.hi)
    if one.clip.hi + 1 != other.clip.lo or replace(one, clip=clip, moved_lo=0, moved_hi=0) != replace(
        other, clip=clip, moved_lo=0, moved_hi=0
    ):
        return None
    pieces = coalesce((*one.visible, *other.visible))
    # With the merge range of one of them, if that shows the same: compaction continues there.
    for ref in (replace(one, clip=clip), replace(other, clip=clip)):
        if ref.visible == pieces:
            return ref
    match pieces:
        case [only]:
            return replace(one, clip=only, moved_lo=0, moved_hi=0)
        case [below, above]:
            return replace(one, clip=HashRange(below.lo, above.hi), moved_lo=below.hi + 1, moved_hi=above.lo)
    return None
