"""Whether a table sorted by hash shows the same under another number of shards: no run is read for that."""

from collections.abc import Iterator, Sequence
from itertools import groupby

from dagster_ckpt.protocol.manifest import HashRange, RunRef, shard_range, shown_of

Shown = tuple[object, HashRange]
"""A run, and hashes of it that are shown."""


def shows_alike(before: Sequence[Sequence[RunRef]], after: Sequence[Sequence[RunRef]]) -> bool:
    """Whether two lists of shards show the same rows of the same runs, each shard its own hashes, newest first alike.

    Both are lists of a power of two of shards. Looked at is each range of hashes that is one shard of the more.
    """
    parts = max(len(before), len(after))
    return all(
        _in_order(before[part * len(before) // parts], shard_range(part, parts))
        == _in_order(after[part * len(after) // parts], shard_range(part, parts))
        for part in range(parts)
    ) and all(_is_within(ref.clip, shard_range(shard, len(after))) for shard, refs in enumerate(after) for ref in refs)


def _in_order(refs: Sequence[RunRef], within: HashRange) -> list[tuple[object, tuple[HashRange, ...]]]:
    """What a list shows of these hashes; of references to one run below each other it does not matter how many."""
    shown = (each for ref in refs for each in _shown(ref, within))
    return [(run, _joined([each for _, each in group])) for run, group in groupby(shown, key=lambda each: each[0])]


def _shown(ref: RunRef, within: HashRange) -> Iterator[Shown]:
    for each in shown_of(ref.clip, ref.moved_lo, ref.moved_hi):
        lo, hi = max(each.lo, within.lo, ref.hashes.lo), min(each.hi, within.hi, ref.hashes.hi)
        if lo <= hi:
            yield (ref.path, ref.ancestor, ref.times), HashRange(lo, hi)


def _joined(ranges: list[HashRange]) -> tuple[HashRange, ...]:
    """Ascending, those next to each other made one."""
    joined: list[HashRange] = []
    for each in sorted(ranges, key=lambda each: each.lo):
        if joined and joined[-1].hi + 1 == each.lo:
            joined[-1] = HashRange(joined[-1].lo, each.hi)
        else:
            joined.append(each)
    return tuple(joined)


def _is_within(part: HashRange, whole: HashRange) -> bool:
    return whole.lo <= part.lo and part.hi <= whole.hi
