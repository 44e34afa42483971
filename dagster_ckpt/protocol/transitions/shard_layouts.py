"""Whether a table sorted by hash shows the same rows under another number of shards, without reading a run."""

from collections.abc import Iterator, Sequence
from itertools import groupby

from dagster_ckpt.hash_range import HashRange, coalesce, shard_range
from dagster_ckpt.protocol.manifest.manifest import RunRef

Shown = tuple[object, HashRange]
"""A run, and hashes of it that readers see."""


def shows_alike(before: Sequence[Sequence[RunRef]], after: Sequence[Sequence[RunRef]]) -> bool:
    """Whether two lists of shards show the same rows of the same runs in the same order, each shard only its hashes.

    The length of both is a power of two. They are compared for each shard of the longer one.
    """
    parts = max(len(before), len(after))
    return all(
        _in_order(before[number * len(before) // parts], shard_range(number, parts))
        == _in_order(after[number * len(after) // parts], shard_range(number, parts))
        for number in range(parts)
    ) and all(shard_range(shard, len(after)).covers(ref.clip) for shard, refs in enumerate(after) for ref in refs)


def _in_order(refs: Sequence[RunRef], within: HashRange) -> list[tuple[object, tuple[HashRange, ...]]]:
    """What a list shows of these hashes; adjacent references to one run count as one."""
    shown = (each for ref in refs for each in _visible_parts(ref, within))
    return [
        (run, coalesce(sorted(each for _, each in group))) for run, group in groupby(shown, key=lambda each: each[0])
    ]


def _visible_parts(ref: RunRef, within: HashRange) -> Iterator[Shown]:
    hashes = ref.clip.intersect(ref.hashes).intersect(within)
    return (((ref.path, ref.ancestor, ref.times), each) for each in hashes.outside(ref.moved_lo, ref.moved_hi))
