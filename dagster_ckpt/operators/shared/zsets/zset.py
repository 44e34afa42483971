"""A delta: rows, each with a weight that says how many such rows come (above 0) or go (below 0).

A change log is one: an update is a row that goes and a row that comes.

    a, 1   +2        consolidated      a, 1   +1
    b, 1   +1            ->            b, 1   +1
    a, 1   -1                          (c came and went)
    c, 1   +1
    c, 1   -1
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa

from dagster_ckpt.lsm.columns import Positions, flatten, stack, take
from dagster_ckpt.lsm.runs.key_order import key_order
from dagster_ckpt.lsm.table import Hashes
from dagster_ckpt.operators.operator import Changes
from dagster_ckpt.operators.shared.bounded.lookups import BatchSize
from dagster_ckpt.operators.shared.net_changes import copies_changed, signs_of


@dataclass(frozen=True)
class ZSet:
    """n rows under these hashes, of equal rows or of their keys, with `weights`: n of them, or n of each of k inputs.

    A weight may be 0, and a row may be there several times, until it is consolidated.
    """

    hashes: Hashes
    rows: pa.Table
    weights: Positions

    @classmethod
    def of_changes(cls, hashes: Hashes, rows: pa.Table, columns: Sequence[str]) -> "ZSet":
        """Rows of an input in these columns. `_change_type` says which of them go; without it all come.

        Raises `InvalidPipelineError` for an unknown change type.
        """
        return cls(hashes, flatten(rows.select(list(columns))), signs_of(rows))

    def __len__(self) -> int:
        return len(self.hashes)

    def only(self, at: Positions) -> "ZSet":
        """The rows at these positions."""
        return ZSet(self.hashes[at], take(self.rows, at), self.weights[..., at])

    def parts_by_hash(self, batch: BatchSize) -> Iterator["ZSet"]:
        """The rows by ascending hash, as many at once as the batch has when the iterator reaches them."""
        order, first = np.argsort(self.hashes, kind="stable"), 0
        while first < len(order):
            part = order[first : first + batch.count]
            yield self.only(part)
            first += len(part)

    def consolidate(self, by: Hashes | None = None, columns: Sequence[str] | None = None) -> "ZSet":
        """Each distinct row once, with the sum of its weights; without those whose sum is 0.

        `by` are hashes of the rows, equal for equal ones, where `hashes` are those of their keys. Rows that are equal
        in the `columns`, if given, are one: in the others it has what the first of them has.
        """
        if len(self) == 0:
            return self
        rows = self.rows if columns is None else self.rows.select(list(columns))
        groups = key_order(self.hashes if by is None else by, rows)
        weights = np.add.reduceat(self.weights[groups.order], groups.starts)
        some = np.flatnonzero(weights)
        return replace(self.only(groups.order[groups.starts[some]]), weights=weights[some])

    def negate(self) -> "ZSet":
        """The rows that come go, and the others come."""
        return replace(self, weights=-self.weights)

    def concat(self, other: "ZSet") -> "ZSet":
        """The rows of both, which have the same columns."""
        weights = np.concatenate([self.weights, other.weights], axis=-1)
        return ZSet(np.append(self.hashes, other.hashes), stack([self.rows, other.rows]), weights)

    def to_changes(self, columns: Sequence[str]) -> Changes:
        """Rows of the change log with these columns: inserts, then deletes, each row as often as its weight says."""
        rows = partial(take, self.rows.select(list(columns)))
        return copies_changed(self.weights, rows, rows)
