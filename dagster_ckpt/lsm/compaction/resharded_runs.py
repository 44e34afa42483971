"""Reshards the run lists of a table sorted by hash. Reads and writes no run.

A shard is a range of hashes. If a shard is split, each new one gets the runs that show hashes of it, with a clip; if
shards are joined, the new one gets the runs of all, newest first.

Compaction may have moved down a different part of a run in each of the old shards, but a reference has only one merge
range. Then the new shard names the run more than once, in adjacent references, each with the clip of an old shard: no
clip overlaps another. Merging reduces them in time, as it does with all runs.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain

from dagster_ckpt.hash_range import HashRange, coalesce, shard_range, split
from dagster_ckpt.lsm.compaction.levels import in_one_order, upper_count, visible_hashes
from dagster_ckpt.lsm.compaction.run_lists import RunLists
from dagster_ckpt.protocol.manifest.manifest import RunRef


def reshard_lists(lists: Sequence[Sequence[RunRef]], shards: int) -> RunLists:
    """The lists of `shards` shards that show the same rows in the same order as these; both are powers of two."""
    before = len(lists)
    within = split(shards)
    if shards >= before:
        return tuple(_of(lists[shard * before // shards], each) for shard, each in enumerate(within))
    joined = before // shards
    own = [_of(refs, shard_range(shard, before)) for shard, refs in enumerate(lists)]
    return tuple(_join(own[shard * joined : (shard + 1) * joined], shard * joined, before) for shard in range(shards))


def _of(refs: Iterable[RunRef], within: HashRange) -> tuple[RunRef, ...]:
    """A shard's runs that show hashes of this range, clipped to it."""
    return tuple(ref.within(within) for ref in refs if visible_hashes(ref, within))


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
