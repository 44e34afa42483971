"""Ranges of 64-bit key hashes and their arithmetic: both bounds inclusive, because 2**64 fits no unsigned integer."""

from collections.abc import Iterable
from typing import NamedTuple

HASH_MAX = 2**64 - 1
"""The greatest key hash."""


class HashRange(NamedTuple):
    """A range of key hashes, both bounds inclusive; empty where `lo` is above `hi`."""

    lo: int = 0
    hi: int = HASH_MAX

    @property
    def is_empty(self) -> bool:
        return self.lo > self.hi

    def covers(self, other: "HashRange") -> bool:
        return self.lo <= other.lo and other.hi <= self.hi

    def intersect(self, other: "HashRange") -> "HashRange":
        """What both have; empty where they have nothing in common."""
        return HashRange(max(self.lo, other.lo), min(self.hi, other.hi))

    def subtract(self, other: "HashRange") -> tuple["HashRange", ...]:
        """The parts of this range that are not in the other: none, one or two, ascending."""
        return self.outside(other.lo, other.hi + 1) if other.lo <= other.hi else self.outside(0, 0)

    def outside(self, start: int, stop: int) -> tuple["HashRange", ...]:
        """The parts that are not in the circular range from `start` up to but not including `stop`; ascending.

        Where `start` is the greater one, the circular range goes round; where both are equal, it is empty.
        """
        # Each epoch asks this of every run of every shard: plain integers, no range that is thrown away.
        lo, hi = self
        if lo > hi:
            return ()
        if start == stop:
            return (self,)
        if start > stop:
            lo, hi = max(lo, stop), min(hi, start - 1)
            return (HashRange(lo, hi),) if lo <= hi else ()
        below = (HashRange(lo, min(hi, start - 1)),) if lo < start else ()
        return (*below, HashRange(max(lo, stop), hi)) if hi >= stop else below


def split(count: int) -> list[HashRange]:
    """All hashes in so many adjacent ranges of about the same size, ascending."""
    return [shard_range(number, count) for number in range(count)]


def shard_range(number: int, of: int) -> HashRange:
    """One of the ranges of `split`: the hashes of a shard where `of` is the stream's number of shards."""
    hashes = HASH_MAX + 1
    return HashRange(hashes * number // of, hashes * (number + 1) // of - 1)


def coalesce(ranges: Iterable[HashRange]) -> tuple[HashRange, ...]:
    """Ascending disjoint ranges, adjacent ones made one."""
    joined: list[HashRange] = []
    for each in ranges:
        if joined and joined[-1].hi + 1 == each.lo:
            joined[-1] = HashRange(joined[-1].lo, each.hi)
        else:
            joined.append(each)
    return tuple(joined)
