"""Whether the rows of a regular join have a unique key, given those of its inputs."""

from collections.abc import Sequence

from dagster_ckpt.operators.joins.join_types import LEFT, RIGHT, JoinType
from dagster_ckpt.operators.joins.regular.regular_side import RegularSide

RowKey = tuple[str, ...] | None
"""Columns that identify a row of a table; None: its rows may be equal."""


def row_key_of(how: JoinType, sides: tuple[RegularSide, RegularSide], keys: Sequence[RowKey]) -> RowKey:
    """The columns that identify a row of the join, if its inputs have such columns: `keys`.

    Where a row has at most one partner, because the join's keys identify that, its own key is enough; else it is those
    of both. None for a full join: an unmatched row of the left and one of the right may both be null in both keys.
    """
    left, right = keys
    if not how.gives_pairs:
        return left
    if how is JoinType.FULL:
        return None
    if left is not None and how is not JoinType.RIGHT and _finds_one(right, sides[RIGHT]):
        return left
    if right is not None and how is not JoinType.LEFT and _finds_one(left, sides[LEFT]):
        return _with_shard(how, sides, right)
    if left is None or right is None:
        return None
    return _with_shard(how, sides, tuple(dict.fromkeys([*left, *right])))


def _finds_one(key: RowKey, side: RegularSide) -> bool:
    """Whether the join's keys identify a row of this side."""
    return key is not None and set(key) <= set(side.keys)


def _with_shard(how: JoinType, sides: tuple[RegularSide, RegularSide], key: tuple[str, ...]) -> tuple[str, ...]:
    """The key and, of a right join, the keys of the right: the left's are null in unmatched rows."""
    return tuple(dict.fromkeys([*sides[RIGHT].keys, *key])) if how is JoinType.RIGHT else key
