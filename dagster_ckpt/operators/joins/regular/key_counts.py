"""How many rows each side of a regular join has of a key, where the join type depends on it."""

from dataclasses import dataclass
from itertools import starmap

import numpy as np
import pyarrow as pa

from dagster_ckpt.lsm.columns import Positions, flat
from dagster_ckpt.lsm.table import State
from dagster_ckpt.operators.joins.join_types import LEFT, RIGHT, JoinType
from dagster_ckpt.operators.joins.regular.arrived_keys import ArrivedKeys
from dagster_ckpt.operators.joins.regular.regular_side import RegularSide
from dagster_ckpt.operators.shared.state_columns import whole_number
from dagster_ckpt.operators.shared.zsets.zset import ZSet
from dagster_ckpt.operators.shared.zsets.zset_table import Weighed, ZSetTable
from dagster_ckpt.protocol.manifest.manifest import StateTableSpec

COUNTS = "counts"
"""The state table."""
COUNT_COLUMNS = ("_left", "_right")


@dataclass(frozen=True)
class SideCounts:
    """The rows that a side has of n keys, before the epoch and after it."""

    before: Positions
    after: Positions


@dataclass(frozen=True)
class Counted:
    """The counts of n keys, by the number of the side, and in the table."""

    weighed: Weighed
    of_sides: dict[int, SideCounts]


@dataclass(frozen=True)
class KeyCounts:
    """How many rows each key has, kept for the sides that decide whether the other side's rows are unmatched."""

    left: RegularSide
    numbers: tuple[int, ...]

    @classmethod
    def of(cls, left: RegularSide, how: JoinType) -> "KeyCounts":
        """The counts that this type of join needs."""
        needed = {RIGHT: how.keeps_unmatched(LEFT) or not how.gives_pairs, LEFT: how.keeps_unmatched(RIGHT)}
        return cls(left, tuple(number for number in (LEFT, RIGHT) if needed[number]))

    @property
    def specs(self) -> tuple[StateTableSpec, ...]:
        """The state table, if there is one."""
        if not self.numbers:
            return ()
        keys = [self.left.schema.field(key) for key in self.left.keys]
        counts = [whole_number(COUNT_COLUMNS[number]) for number in self.numbers]
        return (StateTableSpec(COUNTS, pa.schema([*keys, *counts]), self.left.keys),)

    def of_keys(self, arrived: ArrivedKeys, state: State) -> Counted | None:
        """The counts of the keys before and after the epoch; None if the join needs none.

        Raises `CorruptStateError` if there are fewer rows than none.
        """
        if not self.numbers:
            return None
        [spec] = self.specs
        schema = pa.schema([spec.schema.field(key) for key in spec.keys])
        keys = pa.Table.from_arrays([flat(column) for column in arrived.keys.columns], schema=schema)
        more = np.stack([arrived.more(number) for number in self.numbers])
        delta = ZSet(arrived.hashes, keys, more if len(more) > 1 else more[0])
        weighed = self._table.weigh(delta, state)
        self._table.check(weighed.after)
        sides = zip(np.atleast_2d(weighed.before), np.atleast_2d(weighed.after), strict=True)
        return Counted(weighed, dict(zip(self.numbers, starmap(SideCounts, sides), strict=True)))

    def put(self, counted: Counted, state: State) -> None:
        """Keep the counts after the epoch; a key without rows leaves the table."""
        self._table.write(counted.weighed, state)

    @property
    def _table(self) -> ZSetTable:
        [spec] = self.specs
        return ZSetTable(spec, tuple(COUNT_COLUMNS[number] for number in self.numbers))
