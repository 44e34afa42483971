"""The distinct values of a column under each key as a table, so that a value is written once."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dagster_ckpt.lsm.columns import Positions, flat, take
from dagster_ckpt.lsm.runs.key_order import KeyOrder, key_order
from dagster_ckpt.lsm.table import Hashes, State
from dagster_ckpt.operators.aggregates.bags.distinct import MarkedValues, NewAndGoneValues
from dagster_ckpt.operators.operator import EpochContext
from dagster_ckpt.operators.shared import retraction
from dagster_ckpt.operators.shared.arrays.lists import alike
from dagster_ckpt.operators.shared.arrays.nulls import has_value
from dagster_ckpt.operators.shared.state_columns import ROWS, whole_number
from dagster_ckpt.operators.shared.subkeys import subkey_hashes
from dagster_ckpt.operators.shared.zsets.zset import ZSet
from dagster_ckpt.operators.shared.zsets.zset_table import ZSetTable
from dagster_ckpt.protocol.manifest.manifest import StateTableSpec

VALUE = "_value"


@dataclass(frozen=True)
class DistinctTable:
    """A `SideTable`: finds, for `count`, the rows that bring a value to their key, and those that take its last one.

    Where the input updates and deletes rows, it has the number of rows with each value.
    """

    values: ZSetTable
    count: MarkedValues

    @classmethod
    def of(cls, number: int, keys: tuple[str, ...], schema: pa.Schema, count: MarkedValues) -> "DistinctTable":
        """The table with this number, for an input with these columns."""
        weights = (ROWS,) if isinstance(count, NewAndGoneValues) else ()
        fields = [schema.field(key) for key in keys]
        value = pa.field(VALUE, schema.field(count.column).type, nullable=False)
        columns = pa.schema([*fields, value, *map(whole_number, weights)])
        spec = StateTableSpec(f"distinct_{number}", columns, (*keys, VALUE))
        return cls(ZSetTable(spec, weights, once=(not weights,)), count)

    @property
    def specs(self) -> tuple[StateTableSpec, ...]:
        return (self.values.spec,)

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.count.marks,)

    @property
    def settles(self) -> tuple[str, ...]:
        return ()

    def take_in(self, hashes: Hashes, rows: pa.Table, state: State, context: EpochContext, *, back: bool) -> pa.Table:
        """The rows with one more column, `count.marks`: True in one row of each value that its key has only now.

        Where rows are retracted (`back`), in one row of each value that its key no longer has.
        """
        pairs = KeyValues.of(self.values.spec, self.count.column, hashes, rows)
        firsts, sizes = pairs.firsts, pairs.groups.sizes
        if len(firsts) == 0:
            return mark_rows(rows, self.count.marks, firsts)
        delta = ZSet(pairs.hashes[firsts], take(pairs.rows, firsts), -sizes if back else sizes)
        weighed = self.values.weigh(delta, state)
        if self.values.weights:
            self.values.put_all(weighed, state)
        else:
            self.values.write(weighed, state)
        return mark_rows(rows, self.count.marks, pairs.valued[firsts[(weighed.before > 0) != (weighed.after > 0)]])

    def settle(self, state: State, context: EpochContext) -> Iterator[tuple[Hashes, pa.Table]]:
        """Drop the values without rows. Raises `CorruptStateError` if more rows were retracted than added."""
        if self.values.weights:
            retraction.drop_emptied(self.values.spec, state, (), ())
        return iter(())


@dataclass(frozen=True)
class KeyValues:
    """The keys and values of the rows that have a value, and their hashes; `valued` are the positions of these rows."""

    valued: Positions
    hashes: Hashes
    rows: pa.Table
    groups: KeyOrder

    @classmethod
    def of(cls, spec: StateTableSpec, column: str, hashes: Hashes, rows: pa.Table) -> "KeyValues":
        """For a table whose keys are those of the groups and `VALUE`."""
        valued = np.flatnonzero(has_value(flat(rows.column(column))))
        *keys, _ = spec.keys
        values = alike(flat(take(rows.select([column]), valued).column(0)))
        schema = pa.schema([spec.schema.field(name) for name in spec.keys])
        pairs = pa.Table.from_arrays([*take(rows.select(keys), valued).columns, values], schema=schema)
        pair_hashes = subkey_hashes(hashes[valued], [values])
        return cls(valued, pair_hashes, pairs, key_order(pair_hashes, pairs))

    @property
    def firsts(self) -> Positions:
        """The first of each distinct pair."""
        return self.groups.order[self.groups.starts]


def mark_rows(rows: pa.Table, name: str, at: Positions) -> pa.Table:
    """The rows with one more column: True at these positions."""
    found = np.zeros(rows.num_rows, dtype=np.bool_)
    found[at] = True
    return rows.append_column(name, pa.array(found))
