"""The best rows of each key in an order, over rows that are added and retracted."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from dagster_ckpt.lsm.table import Hashes, State
from dagster_ckpt.operators.operator import EpochContext
from dagster_ckpt.operators.shared.bounded.lookups import BatchSize
from dagster_ckpt.operators.shared.ranked.order_by import RowOrder
from dagster_ckpt.operators.shared.ranked.rank_tree import ADDED, RankedRows, RankTree, tree_spec
from dagster_ckpt.operators.shared.zsets.zset import ZSet
from dagster_ckpt.protocol.manifest.manifest import StateTableSpec

__all__ = ["ADDED", "BestChange", "BestRows"]

_ROOM_BYTES = 1 << 12
"""The assumed size of what is read for a row until the first rows are known."""


@dataclass(frozen=True)
class BestChange:
    """The best rows of distinct keys before some rows of an epoch and after them.

    `before`, `after` and `part`, the rows themselves with their weights, name a key by its position in `keys`.
    """

    hashes: Hashes
    keys: pa.Table
    part: RankedRows
    before: RankedRows
    after: RankedRows


@dataclass(frozen=True)
class BestRows:
    """A bag of rows of each key, of which the best `count` distinct ones are known: see `RankTree`.

    If the input only appends (`appends`), these are all that is kept.
    """

    tree: RankTree

    @classmethod
    def of(
        cls,
        name: str,
        keys: Sequence[pa.Field],
        others: Sequence[pa.Field],
        order: RowOrder,
        count: int,
        *,
        appends: bool = False,
    ) -> "BestRows":
        """The table of this name for rows with these columns."""
        names = tuple(field.name for field in keys)
        return cls(RankTree(tree_spec(name, keys, others), names, order, count, appends))

    @property
    def spec(self) -> StateTableSpec:
        """Its state table."""
        return self.tree.spec

    def changes(self, pieces: Iterable[ZSet], state: State, context: EpochContext) -> Iterator[tuple[ZSet, BestChange]]:
        """Add rows, a part at a time, and what each part changes. A key may be in several parts.

        The rows may have more columns than the tree: it adds up those that are equal in its own.

        Raises `CorruptStateError` where more rows are retracted than were added: so give rows with their net weight.
        """
        batch = BatchSize(context.memory_bytes // 4, _ROOM_BYTES, growth_max=16)
        for piece in pieces:
            for part in piece.parts_by_hash(batch):
                grown = self.tree.update(part, state)
                batch.learn(len(part.hashes), grown.bytes_read)
                yield part, BestChange(grown.hashes, grown.keys, grown.part, grown.before, grown.after)
