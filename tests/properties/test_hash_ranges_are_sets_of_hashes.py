from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from dagster_ckpt.hash_range import HASH_MAX, HashRange, coalesce, shard_range, split

HASHES = st.integers(0, 20)
RANGES = st.builds(HashRange, HASHES, HASHES)


def members(*ranges: HashRange) -> set[int]:
    return {each for part in ranges for each in range(part.lo, part.hi + 1)}


@given(RANGES, RANGES)
def test_intersection_difference_and_cover_are_those_of_sets(one: HashRange, other: HashRange) -> None:
    assert members(one.intersect(other)) == members(one) & members(other)
    assert members(*one.subtract(other)) == members(one) - members(other)
    assert one.is_empty == (not members(one))
    if not other.is_empty:
        assert one.covers(other) == (members(other) <= members(one))


@given(RANGES, HASHES, HASHES)
def test_a_circular_range_is_left_out(one: HashRange, start: int, stop: int) -> None:
    circular = set(range(start, stop)) if start <= stop else {*range(stop), *range(start, 30)}
    parts = one.outside(start, stop)
    assert members(*parts) == members(one) - circular
    assert all(not part.is_empty for part in parts)
    assert list(parts) == sorted(parts)


@given(st.sets(HASHES))
def test_adjacent_ranges_become_one(hashes: set[int]) -> None:
    joined = coalesce(HashRange(each, each) for each in sorted(hashes))
    assert members(*joined) == hashes
    assert all(before.hi + 1 < after.lo for before, after in pairwise(joined))


@given(st.integers(1, 600))
def test_a_split_covers_every_hash_once(count: int) -> None:
    parts = split(count)
    assert (parts[0].lo, parts[-1].hi) == (0, HASH_MAX)
    assert all(before.hi + 1 == after.lo for before, after in pairwise(parts))
    assert parts == [shard_range(number, count) for number in range(count)]
