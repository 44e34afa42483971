"""Matches as ranges: for each row a range of its partners. Pairs are built only when they are emitted."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dagster_ckpt.lsm.columns import Mask, Positions, stretches
from dagster_ckpt.lsm.runs.key_order import key_order
from dagster_ckpt.lsm.table import Hashes

_COMPOSITE_MAX = 2**62


@dataclass(frozen=True)
class Matches:
    """The matches of n rows: row i matches the partners `partners[starts[i]:ends[i]]`."""

    partners: Positions
    starts: Positions
    ends: Positions

    @property
    def has_match(self) -> Mask:
        """Which of the n rows have a match."""
        return self.ends > self.starts

    @property
    def partners_matched(self) -> Positions:
        """The partners with a match, each once, in the order of `partners`."""
        length = len(self.partners) + 1
        some = self.has_match
        begun = np.bincount(self.starts[some], minlength=length) - np.bincount(self.ends[some], minlength=length)
        return self.partners[np.cumsum(begun)[:-1] > 0]

    def pairs(self, most: int) -> Iterator[tuple[Positions, Positions]]:
        """All pairs of a row and a partner, as two arrays of at most `most` positions at a time, by ascending row."""
        sizes = self.ends - self.starts
        until = np.cumsum(sizes)
        total = int(until[-1]) if len(until) else 0
        for first in range(0, total, most):
            last = min(first + most, total)
            begin, end = np.searchsorted(until, first, side="right"), np.searchsorted(until, last, side="left") + 1
            rows = np.arange(begin, end)
            # Some partners of the first and the last row may belong to adjacent pieces.
            starts = self.starts[begin:end] + np.maximum(first - until[begin:end] + sizes[begin:end], 0)
            ends = self.ends[begin:end] - np.maximum(until[begin:end] - last, 0)
            yield np.repeat(rows, ends - starts), np.take(self.partners, stretches(starts, ends))


def within(
    groups: Positions, places: Positions, asked: Positions, lows: Positions, highs: Positions, width: int
) -> Matches:
    """Row i matches the partners of group `asked[i]` whose places are in `[lows[i], highs[i]]`.

    Partner j is in `groups[j]`, and its place `places[j]` is in `[0, width)`; bounds need not be. Uses two searches in
    one sorted column: partners that a row does not match cost no more than the sort.
    """
    lows, highs = np.clip(lows, 0, width), np.clip(highs, -1, width - 1)
    count = max(int(groups.max(initial=0)), int(asked.max(initial=0))) + 1
    if count * width > _COMPOSITE_MAX:
        # Group and place do not fit into one number. Rank the places, leaving out those that no partner has.
        known = np.unique(places)
        lows = np.searchsorted(known, lows, side="left")
        highs = np.searchsorted(known, highs, side="right") - 1
        places, width = np.searchsorted(known, places), len(known)
    composite = groups * width + places
    order = np.argsort(composite, kind="stable")
    composite = np.take(composite, order)
    starts = np.searchsorted(composite, asked * width + lows, side="left")
    ends = np.searchsorted(composite, asked * width + highs, side="right")
    return Matches(order, starts, ends)


def of_equal_keys(hashes: Hashes, keys: pa.Table, rows: int, matchable: Mask) -> Matches:
    """Matches of equal keys: the first `rows` keys are those of the rows, all others those of their partners.

    Only the rows that are `matchable` match: keys are compared by value, in which null equals null.
    """
    groups = key_order(hashes, keys)
    order = groups.order
    is_row = order < rows
    group_of = np.repeat(np.arange(len(groups.starts)), groups.sizes)
    rows_in = np.bincount(group_of[is_row], minlength=len(groups.starts))
    # The order within a key is stable: the rows come before their partners.
    starts, ends = np.zeros(rows, dtype=np.int64), np.zeros(rows, dtype=np.int64)
    starts[order[is_row]] = (groups.starts + rows_in)[group_of[is_row]]
    ends[order[is_row]] = (groups.starts + groups.sizes)[group_of[is_row]]
    return Matches(order - rows, np.where(matchable, starts, 0), np.where(matchable, ends, 0))
