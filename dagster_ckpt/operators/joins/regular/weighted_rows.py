"""Rows of both sides of a regular join before and after an epoch, and the changes of the pairs that follow."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dagster_ckpt.lsm.columns import Mask, Positions, stack, take
from dagster_ckpt.lsm.runs.key_order import key_order
from dagster_ckpt.operators.joins.match_ranges import Matches
from dagster_ckpt.operators.shared.subkeys import subkey_hashes

GROUP_OF = "_group_of"


@dataclass(frozen=True)
class WeightedRows:
    """Rows of one side, of some keys: how often there was each before the epoch, and how often there is after it.

    `groups` has the number of each row's key. A side without rows of a key may have a stand-in for them, null but for
    the key, that rows of the other side without a match are paired with. `before` and `after` count stand-ins too;
    `stood_before` and `stands_after` are how many of these are stand-ins.
    """

    rows: pa.Table
    groups: Positions
    before: Positions
    after: Positions
    stood_before: Positions
    stands_after: Positions

    @classmethod
    def of(cls, rows: pa.Table, groups: Positions, before: Positions, after: Positions) -> "WeightedRows":
        """Rows, none of which is a stand-in."""
        nothing = np.zeros(len(groups), dtype=np.int64)
        return cls(rows, groups, before, after, nothing, nothing)

    @classmethod
    def stand_ins(cls, rows: pa.Table, groups: Positions, before: Positions, after: Positions) -> "WeightedRows":
        """Stand-ins alone."""
        return cls(rows, groups, before, after, before, after)

    @property
    def differs(self) -> Mask:
        """Which rows are not as often there as they were."""
        changed: Mask = (self.before != self.after) | (self.stood_before != self.stands_after)
        return changed

    def only(self, chosen: Positions) -> "WeightedRows":
        """Some of the rows."""
        return WeightedRows(take(self.rows, chosen), self.groups[chosen], *(each[chosen] for each in self.counts))

    @property
    def counts(self) -> tuple[Positions, ...]:
        """All counts of each row."""
        return self.before, self.after, self.stood_before, self.stands_after


def concat_rows(parts: Sequence[WeightedRows]) -> WeightedRows:
    """The rows of several parts, one after another."""
    filled = [part for part in parts if len(part.groups)]
    if len(filled) < 2:
        return filled[0] if filled else parts[0]
    groups = np.concatenate([part.groups for part in filled])
    counts = (np.concatenate(each) for each in zip(*(part.counts for part in filled), strict=True))
    return WeightedRows(stack([part.rows for part in filled]), groups, *counts)


def unite_rows(parts: Sequence[WeightedRows]) -> WeightedRows:
    """The rows of several parts, equal rows of a key once: then no row is both added to the output and taken away."""
    every = concat_rows(parts)
    if sum(len(part.groups) > 0 for part in parts) < 2:
        return every
    rows, groups = every.rows, every.groups
    whole = rows.append_column(GROUP_OF, pa.array(groups))
    order = key_order(subkey_hashes(groups.astype(np.uint64), rows.columns), whole)
    firsts = order.order[order.starts]
    counts = (np.add.reduceat(each[order.order], order.starts) for each in every.counts)
    return WeightedRows(take(rows, firsts), groups[firsts], *counts)


def changed_pairs(
    lefts: WeightedRows, rights: WeightedRows, most: int
) -> Iterator[tuple[Positions, Positions, Positions]]:
    """The pairs of equal keys that are not as often there as they were: positions left and right, and how many more.

    At most `most` pairs are looked at together. Two stand-ins make no pair.
    """
    changed_left, changed_right = np.flatnonzero(lefts.differs), np.flatnonzero(rights.differs)
    every_right = np.arange(len(rights.groups))
    same_left = np.flatnonzero(~lefts.differs)
    for left_at, right_at in ((changed_left, every_right), (same_left, changed_right)):
        for mine, theirs in _of_equal_groups(lefts.groups[left_at], rights.groups[right_at]).pairs(most):
            left, right = left_at[mine], right_at[theirs]
            more = lefts.after[left] * rights.after[right] - lefts.before[left] * rights.before[right]
            more -= lefts.stands_after[left] * rights.stands_after[right]
            more += lefts.stood_before[left] * rights.stood_before[right]
            some = np.flatnonzero(more)
            if len(some):
                yield left[some], right[some], more[some]


def repeat_positions(counts: Positions, most: int) -> Iterator[Positions]:
    """The positions of the counts, each as often as its count, at most `most` at a time."""
    until = np.cumsum(counts)
    total = int(until[-1]) if len(until) else 0
    for first in range(0, total, most):
        yield np.searchsorted(until, np.arange(first, min(first + most, total)), side="right")


def _of_equal_groups(rows: Positions, partners: Positions) -> Matches:
    order = np.argsort(partners, kind="stable")
    ordered = partners[order]
    starts, ends = (np.searchsorted(ordered, rows, side=side) for side in ("left", "right"))
    return Matches(order, starts, ends)
