"""What arrived in an epoch on both sides of a regular join: key after key, as much as fits into memory."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dagster_ckpt.lsm.columns import Positions, flat, stack, take
from dagster_ckpt.lsm.runs.key_order import key_order
from dagster_ckpt.lsm.table import Hashes, State
from dagster_ckpt.operators.joins.regular.regular_side import RegularSide
from dagster_ckpt.operators.shared.zsets.zset import ZSet

Piece = tuple[Hashes, pa.Table]
"""Rows and the hashes of their keys."""

_HASH_MAX = (1 << 64) - 1


@dataclass(frozen=True)
class ArrivedKeys:
    """n distinct keys with the net rows of both sides. `groups` has the key of each row, ascending."""

    hashes: Hashes
    keys: pa.Table
    sides: tuple[ZSet, ZSet]
    groups: tuple[Positions, Positions]

    def __len__(self) -> int:
        return len(self.hashes)

    @classmethod
    def of(cls, sides: tuple[RegularSide, RegularSide], net: tuple[ZSet, ZSet]) -> "ArrivedKeys":
        """The keys of these rows; none of the rows has a null in its key."""
        columns = [_key_columns(side, each.rows) for side, each in zip(sides, net, strict=True)]
        hashes, keys = np.concatenate([each.hashes for each in net]), stack(columns)
        order = key_order(hashes, keys)
        group_of = np.empty(len(hashes), dtype=np.int64)
        group_of[order.order] = np.repeat(np.arange(len(order.starts)), order.sizes)
        firsts = order.order[order.starts]
        split = len(net[0].hashes)
        by_group = [np.argsort(each, kind="stable") for each in (group_of[:split], group_of[split:])]
        left, right = (each.only(order) for each, order in zip(net, by_group, strict=True))
        groups = group_of[:split][by_group[0]], group_of[split:][by_group[1]]
        return cls(hashes[firsts], take(keys, firsts), (left, right), groups)

    def part(self, first: int, end: int) -> "ArrivedKeys":
        """The keys `[first, end)`."""
        places = [np.arange(*np.searchsorted(groups, [first, end]).tolist()) for groups in self.groups]
        left, right = (net.only(at) for net, at in zip(self.sides, places, strict=True))
        groups = self.groups[0][places[0]] - first, self.groups[1][places[1]] - first
        return ArrivedKeys(self.hashes[first:end], self.keys.slice(first, end - first), (left, right), groups)

    def more(self, number: int) -> Positions:
        """How many more rows each key has on a side."""
        more = np.zeros(len(self), dtype=np.int64)
        np.add.at(more, self.groups[number], self.sides[number].weights)
        return more

    def has(self, number: int) -> np.typing.NDArray[np.bool_]:
        """Which keys have net rows on a side."""
        found = np.zeros(len(self), dtype=np.bool_)
        found[self.groups[number]] = True
        return found


def pair_arrivals(sides: tuple[RegularSide, RegularSide], state: State) -> Iterator[tuple[Piece, Piece]]:
    """The rows of both sides that arrived in the epoch, all rows of a key hash together, by ascending hash."""
    left, right = (_Waiting(side.epoch_arrivals(state), side.arrivals.schema) for side in sides)
    while left.fill() | right.fill():
        until = min(left.complete_until, right.complete_until)
        yield left.take(until), right.take(until)


class _Waiting:
    """Pieces of a side, of which some rows wait for the other side."""

    def __init__(self, pieces: Iterator[Piece], schema: pa.Schema) -> None:
        self._pieces = pieces
        self._held: Piece = np.empty(0, dtype=np.uint64), schema.empty_table()
        self._next = next(pieces, None)

    @property
    def complete_until(self) -> int:
        """The hash up to which all is known: the last one held, or the greatest there is if no piece follows."""
        return int(self._held[0][-1]) if self._next is not None else _HASH_MAX

    def fill(self) -> bool:
        """Hold the next piece if nothing is held; returns whether something is now.

        The piece behind it is read too: two rounds, of which one has a few rows, cost nearly twice as much as one.
        """
        while len(self._held[0]) == 0 and self._next is not None:
            self._held, self._next = self._next, next(self._pieces, None)
        return len(self._held[0]) > 0

    def take(self, until: int) -> Piece:
        """The held rows up to this hash, which then wait no longer."""
        hashes, rows = self._held
        count = int(np.searchsorted(hashes, np.uint64(until), side="right"))
        self._held = hashes[count:], rows.slice(count)
        return hashes[:count], rows.slice(0, count)


def _key_columns(side: RegularSide, rows: pa.Table) -> pa.Table:
    """The key columns under names that both sides share."""
    columns = [flat(rows.column(key)) for key in side.keys]
    return pa.table(columns, names=[str(number) for number in range(len(columns))])
