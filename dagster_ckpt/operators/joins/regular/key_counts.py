"""How many rows each side of a regular join has of a key, where the join type depends on it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dagster_ckpt.errors import CorruptStateError
from dagster_ckpt.lsm.columns import Positions, flat, take
from dagster_ckpt.lsm.runs.deltas import chosen
from dagster_ckpt.lsm.table import Found, State
from dagster_ckpt.operators.joins.join_types import LEFT, RIGHT, JoinType
from dagster_ckpt.operators.joins.regular.arrived_keys import ArrivedKeys
from dagster_ckpt.operators.joins.regular.regular_side import RegularSide
from dagster_ckpt.operators.joins.sides import numbers_of
from dagster_ckpt.operators.shared.state_columns import whole_number
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
    """The counts of n keys, by the number of the side, and what the table has of them."""

    keys: pa.Table
    found: Found
    of_sides: dict[int, SideCounts]


@dataclass(frozen=True)
class KeyCounts:
    """The counts of the sides whose rows decide whether rows of the other side are unmatched."""

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
        found = state.table(spec.name).get(arrived.hashes, keys)
        counts = dict[int, SideCounts]()
        for number in self.numbers:
            before = np.zeros(len(arrived), dtype=np.int64)
            before[found.present] = numbers_of(found.rows, COUNT_COLUMNS[number])
            counts[number] = SideCounts(before, before + arrived.more(number))
        _check([each.after for each in counts.values()])
        return Counted(keys, found, counts)

    def put(self, arrived: ArrivedKeys, counted: Counted, state: State) -> None:
        """Keep the counts after the epoch; a key without rows leaves the table."""
        [spec] = self.specs
        table = state.table(spec.name)
        sides, found, keys = counted.of_sides.values(), counted.found, counted.keys
        changed = np.any([each.before != each.after for each in sides], axis=0)
        empty = ~np.any([each.after for each in sides], axis=0)
        put, gone = np.flatnonzero(changed & ~empty), np.flatnonzero(changed & empty & found.present)
        if len(put):
            columns = [*take(keys, put).columns, *(pa.array(each.after[put]) for each in sides)]
            rows = pa.Table.from_arrays(columns, schema=spec.schema)
            table.put(arrived.hashes[put], rows, before=chosen(found, put))
        if len(gone):
            table.delete(arrived.hashes[gone], take(keys, gone), before=chosen(found, gone))


def _check(counts: Sequence[Positions]) -> None:
    wrong = np.any([each < 0 for each in counts], axis=0)
    if wrong.any():
        raise CorruptStateError(
            "rows were retracted that were never added, so the state of the join does not fit its input: rebuild it "
            f"from the beginning with rollback(0). keys={np.count_nonzero(wrong)}"
        )
