"""The best rows of each key where every row has a place of its own, as by ROW_NUMBER."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dagster_ckpt.lsm.columns import Positions, take
from dagster_ckpt.lsm.table import State
from dagster_ckpt.operators.operator import EpochContext
from dagster_ckpt.operators.shared.ranked.best_rows import BestChange, BestRows
from dagster_ckpt.operators.shared.ranked.rank_tree import RankedRows
from dagster_ckpt.operators.shared.zsets.zset import ZSet
from dagster_ckpt.protocol.manifest.manifest import StateTableSpec

RANKED = "ranked"
"""The state table with the rows in their order, or with the values that rank them."""


@dataclass(frozen=True)
class RowPlaces:
    """The `count` best rows of each key. `rank`: the column with the place of each, from 1."""

    best: BestRows
    count: int
    rank: pa.Field | None

    @property
    def specs(self) -> tuple[StateTableSpec, ...]:
        """Its state tables."""
        return (self.best.spec,)

    def apply(self, pieces: Iterable[ZSet], state: State, context: EpochContext) -> Iterator[ZSet]:
        """Add rows; yields what the output gains, and with a negative weight what it loses."""
        for _, change in self.best.changes(pieces, state, context):
            yield self._show(change, change.after).concat(self._show(change, change.before).negate())

    def _show(self, change: BestChange, kept: RankedRows) -> ZSet:
        """These rows as the output has them."""
        before = copies_before(kept)
        shown = np.clip(self.count - before, 0, kept.copies)
        if self.rank is None:
            at = np.flatnonzero(shown)
            others, weights = take(kept.rows, at), shown[at]
        else:
            at = np.repeat(np.arange(len(shown)), shown)
            places = before[at] + np.arange(len(at)) - np.repeat(np.cumsum(shown) - shown, shown) + 1
            others = take(kept.rows, at).append_column(self.rank, pa.array(places, self.rank.type))
            weights = np.ones(len(at), dtype=np.int64)
        keys = take(change.keys, kept.nodes[at])
        schema = pa.schema([*keys.schema, *others.schema])
        rows = pa.Table.from_arrays([*keys.columns, *others.columns], schema=schema)
        return ZSet(change.hashes[kept.nodes[at]], rows, weights)


def copies_before(kept: RankedRows) -> Positions:
    """How many rows of the same node, each with its copies, come before each row."""
    before = np.cumsum(kept.copies) - kept.copies
    starts = np.flatnonzero(np.diff(kept.nodes, prepend=-1))
    found: Positions = before - np.repeat(before[starts], np.diff(starts, append=len(kept.nodes)))
    return found
