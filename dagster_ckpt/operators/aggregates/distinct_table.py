"""The distinct values of a column under each key, as rows of state: each value is written once."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dagster_ckpt.lsm.columns import Positions, flat, take
from dagster_ckpt.lsm.runs.deltas import chosen
from dagster_ckpt.lsm.runs.key_order import KeyOrder, key_order
from dagster_ckpt.lsm.table import Hashes, State
from dagster_ckpt.operators.aggregates.bags.distinct import MarkedValues
from dagster_ckpt.operators.operator import EpochContext
from dagster_ckpt.operators.shared.arrays.lists import alike
from dagster_ckpt.operators.shared.arrays.nulls import known
from dagster_ckpt.operators.shared.subkeys import subkey_hashes
from dagster_ckpt.protocol.manifest.manifest import StateTableSpec

VALUE = "_value"


@dataclass(frozen=True)
class DistinctTable:
    """Finds, for `count`, the rows with a value that their key did not have. Rows never leave the table.

    A `SideTable` of an input that only appends.
    """

    spec: StateTableSpec
    count: MarkedValues

    @classmethod
    def of(cls, number: int, keys: tuple[str, ...], schema: pa.Schema, count: MarkedValues) -> "DistinctTable":
        """The table with this number, for an input with these columns."""
        fields = [schema.field(key) for key in keys]
        value = pa.field(VALUE, schema.field(count.column).type, nullable=False)
        return cls(StateTableSpec(f"distinct_{number}", pa.schema([*fields, value]), (*keys, VALUE)), count)

    @property
    def specs(self) -> tuple[StateTableSpec, ...]:
        return (self.spec,)

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.count.found,)

    @property
    def settles(self) -> tuple[str, ...]:
        return ()

    def settled(self, state: State, context: EpochContext) -> Iterator[tuple[Hashes, pa.Table]]:
        return iter(())

    def taken_in(self, hashes: Hashes, rows: pa.Table, state: State, context: EpochContext, *, back: bool) -> pa.Table:
        """The rows with one more column, `count.found`: whether the row is the first of its key with its value."""
        assert not back, "the table does not count how often a value is there"
        pairs = Pairs.of(self.spec, self.count.column, hashes, rows)
        if len(pairs.firsts) == 0:
            return marked(rows, self.count.found, pairs.firsts)
        table = state.table(self.spec.name)
        found = table.get(pairs.hashes[pairs.firsts], take(pairs.rows, pairs.firsts))
        absent = np.flatnonzero(~found.present)
        new = pairs.firsts[absent]
        if len(new):
            table.put(pairs.hashes[new], take(pairs.rows, new), before=chosen(found, absent))
        return marked(rows, self.count.found, pairs.valued[new])


@dataclass(frozen=True)
class Pairs:
    """The keys and values of the rows that have a value, and their hashes; `valued` are the positions of these rows."""

    valued: Positions
    hashes: Hashes
    rows: pa.Table
    groups: KeyOrder

    @classmethod
    def of(cls, spec: StateTableSpec, column: str, hashes: Hashes, rows: pa.Table) -> "Pairs":
        """For a table whose keys are those of the groups and `VALUE`."""
        valued = np.flatnonzero(known(flat(rows.column(column))))
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


def marked(rows: pa.Table, name: str, at: Positions) -> pa.Table:
    """The rows with one more column: True at these positions."""
    found = np.zeros(rows.num_rows, dtype=np.bool_)
    found[at] = True
    return rows.append_column(name, pa.array(found))
