"""The best rows of each key where every row has a place of its own, as by ROW_NUMBER."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dagster_ckpt.lsm.columns import Positions, stack, take
from dagster_ckpt.lsm.table import State
from dagster_ckpt.operators.operator import EpochContext
from dagster_ckpt.operators.shared.ranked.best_rows import BestChange, BestRows
from dagster_ckpt.operators.shared.ranked.epoch_rows import WeightedRows
from dagster_ckpt.operators.shared.ranked.rank_tree import Kept
from dagster_ckpt.protocol.manifest.manifest import StateTableSpec

STEP = "top"
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

    def changed(self, pieces: Iterable[WeightedRows], state: State, context: EpochContext) -> Iterator[WeightedRows]:
        """Add rows; yields what the output gains, and with a negative weight what it loses."""
        for _, change in self.best.changes(pieces, state, context):
            yield self._weighted(change)

    def _weighted(self, change: BestChange) -> WeightedRows:
        nodes, rows, weights = zip(self._out(change.before, -1), self._out(change.after, 1), strict=True)
        of_key = np.concatenate(nodes)
        keys, others = take(change.keys, of_key), stack(list(rows))
        schema = pa.schema([*keys.schema, *others.schema])
        table = pa.Table.from_arrays([*keys.columns, *others.columns], schema=schema)
        return WeightedRows(change.hashes[of_key], table, np.concatenate(weights))

    def _out(self, kept: Kept, sign: int) -> tuple[Positions, pa.Table, Positions]:
        """The rows of the output besides their keys: the position of each one's key, and how often it is there."""
        before = copies_before(kept)
        shown = np.clip(self.count - before, 0, kept.copies)
        if self.rank is None:
            there = np.flatnonzero(shown)
            return kept.nodes[there], take(kept.rows, there), sign * shown[there]
        at = np.repeat(np.arange(len(shown)), shown)
        places = before[at] + np.arange(len(at)) - np.repeat(np.cumsum(shown) - shown, shown) + 1
        rows = take(kept.rows, at).append_column(self.rank, pa.array(places, self.rank.type))
        return kept.nodes[at], rows, np.full(len(at), sign)


def copies_before(kept: Kept) -> Positions:
    """How many rows of the same node, each with its copies, come before each row."""
    before = np.cumsum(kept.copies) - kept.copies
    starts = np.flatnonzero(np.diff(kept.nodes, prepend=-1))
    found: Positions = before - np.repeat(before[starts], np.diff(starts, append=len(kept.nodes)))
    return found
