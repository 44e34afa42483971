"""The levels of some shards' runs, taken together: upper runs that overlap, above a bottom that does not.

A shard's list is newest first. Its bottom is the longest part at the old end in which no two runs show the same hash:
nothing is older, so a tombstone there hides nothing. All runs before it are upper. So any list has levels, also one
written by a release that had none.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import chain, groupby
from operator import itemgetter

from dagster_ckpt.hash_range import HashRange, coalesce
from dagster_ckpt.ids import StreamUuid
from dagster_ckpt.protocol.manifest.manifest import RunRef

File = tuple[str, StreamUuid | None, int | None]
"""Equal for references to the same rows: the file, and the time from which on its rows are shown."""


@dataclass(frozen=True, slots=True)
class VisibleRun:
    """A file and the hashes of it that some shards show: ascending, disjoint, not adjacent, never empty.

    `ref` is the reference of one of these shards: its `clip` and merge range do not apply to the others.
    """

    ref: RunRef
    shown: tuple[HashRange, ...]


@dataclass(frozen=True, slots=True)
class Levels:
    """The runs of some shards together.

    `upper` is newest first: the first that has a key's row hides the others, and all of `bottom`. `bottom` is
    ascending; each shows exactly one range and no two the same hash. A file may occur more than once.
    """

    upper: tuple[VisibleRun, ...]
    bottom: tuple[VisibleRun, ...]


def split_levels(lists: Sequence[Sequence[RunRef]], ranges: Sequence[HashRange]) -> Levels:
    """The levels of the shards with these run lists and hash ranges; the ranges are contiguous and ascending.

    A file that several shards name becomes one, as far as the orders of their lists allow.
    """
    uppers, bottom = [], []
    for refs, within in zip(lists, ranges, strict=True):
        depth = upper_count(refs, within)
        uppers.append([ref for ref in refs[:depth] if visible_hashes(ref, within)])
        bottom += sorted(
            ((piece, ref) for ref in refs[depth:] for piece in visible_hashes(ref, within)), key=itemgetter(0)
        )
    upper = (_visible_run(group, ranges) for group in in_one_order(uppers))
    return Levels(tuple(upper), tuple(_files_of(bottom)))


def visible_hashes(ref: RunRef, within: HashRange) -> tuple[HashRange, ...]:
    """The hashes of the file that a shard of this hash range shows, within the file's hashes; ascending.

    At most two ranges: a merge range that does not wrap around leaves those below and those above it.
    """
    clip, hashes = ref.clip, ref.hashes
    least, greatest = max(clip.lo, hashes.lo, within.lo), min(clip.hi, hashes.hi, within.hi)
    return HashRange(least, greatest).outside(ref.moved_lo, ref.moved_hi)


def upper_count(refs: Sequence[RunRef], within: HashRange) -> int:
    """How many of a shard's runs are upper runs."""
    starts: list[int] = []
    ends: list[int] = []
    for depth in range(len(refs), 0, -1):
        # By clip, not by the file's hashes: runs that came in the order of their times would all be bottom, and never
        # be merged.
        ref = refs[depth - 1]
        for lo, hi in ref.clip.intersect(within).outside(ref.moved_lo, ref.moved_hi):
            at = bisect_left(starts, lo)
            if (at > 0 and ends[at - 1] >= lo) or (at < len(starts) and starts[at] <= hi):
                return depth
            starts.insert(at, lo)
            ends.insert(at, hi)
    return 0


def in_one_order(lists: Sequence[Sequence[RunRef]]) -> list[list[tuple[int, RunRef]]]:
    """One list that keeps the order of each of these: for each file the lists (by index) that name it, ascending.

    A list may name several parts of a file; adjacent ones are taken together. A file is taken when it is the next of
    every list in which it still occurs; the newest such file first. If there is none (we never write such lists), one
    list advances alone, and the file recurs for the others.
    """
    heads = _Heads(lists)
    order = []
    while group := heads.take():
        order.append(group)
    return order


class _Heads:
    """The next file of each list."""

    def __init__(self, lists: Sequence[Sequence[RunRef]]) -> None:
        self._lists = [[tuple(parts) for _, parts in groupby(refs, key=_file)] for refs in lists]
        self._next = [0] * len(lists)
        self._waiting = Counter(_file(parts[0]) for parts in chain.from_iterable(self._lists))
        self._indices: dict[File, list[int]] = {}
        self._ready: list[tuple[int, int]] = []
        for index in range(len(lists)):
            self._arrive(index)

    def take(self) -> list[tuple[int, RunRef]]:
        """The next file and the lists that name it; empty: nothing is left."""
        if not self._indices:
            return []
        if self._ready:
            _, first = heappop(self._ready)
            file = _file(self._head(first))
            indices = sorted(self._indices.pop(file))
        else:
            file, (first, *others) = next(iter(self._indices.items()))
            indices = [first]
            self._indices[file] = others
        group = [(index, ref) for index in indices for ref in self._lists[index][self._next[index]]]
        self._waiting[file] -= len(indices)
        for index in indices:
            self._next[index] += 1
        if file in self._indices:
            self._look_at(file)
        for index in indices:
            self._arrive(index)
        return group

    def _arrive(self, index: int) -> None:
        if self._next[index] < len(self._lists[index]):
            file = _file(self._head(index))
            self._indices.setdefault(file, []).append(index)
            self._look_at(file)

    def _look_at(self, file: File) -> None:
        indices = self._indices[file]
        if not indices:
            del self._indices[file]
        elif len(indices) == self._waiting[file]:
            heappush(self._ready, (-self._head(indices[0]).epoch, indices[0]))

    def _head(self, index: int) -> RunRef:
        return self._lists[index][self._next[index]][0]


def _visible_run(group: list[tuple[int, RunRef]], ranges: Sequence[HashRange]) -> VisibleRun:
    pieces = sorted(piece for index, ref in group for piece in visible_hashes(ref, ranges[index]))
    return VisibleRun(group[0][1], coalesce(pieces))


def _files_of(bottom: list[tuple[HashRange, RunRef]]) -> Iterable[VisibleRun]:
    """The bottom's pieces, ascending; adjacent ones of one file are joined."""
    for _, group in groupby(bottom, key=lambda each: _file(each[1])):
        pieces = list(group)
        yield from (VisibleRun(pieces[0][1], (each,)) for each in coalesce(piece for piece, _ in pieces))


def _file(ref: RunRef) -> File:
    # The time, because a shard that narrowed it no longer sees rows that another one still sees.
    return ref.path, ref.ancestor, None if ref.times is None else ref.times.least_us
