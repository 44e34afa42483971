"""The distinct values of a column under each key, as rows of state: each value is written once."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dagster_ckpt.lsm.columns import flat, take
from dagster_ckpt.lsm.runs.deltas import chosen
from dagster_ckpt.lsm.runs.key_order import key_order
from dagster_ckpt.lsm.table import Hashes, State
from dagster_ckpt.operators.operator import EpochContext
from dagster_ckpt.operators.shared.accumulators.accumulator import known
from dagster_ckpt.operators.shared.accumulators.distinct import NewValues
from dagster_ckpt.operators.shared.accumulators.lists import alike
from dagster_ckpt.operators.shared.subkeys import subkey_hashes
from dagster_ckpt.protocol.manifest.manifest import StateTableSpec

VALUE = "_value"


@dataclass(frozen=True)
class DistinctTable:
    """Finds, for `count`, the rows with a value that their key did not have. Rows never leave the table.

    A `SideTable` of an input that only appends.
    """

    spec: StateTableSpec
    count: NewValues

    @classmethod
    def of(cls, number: int, keys: tuple[str, ...], schema: pa.Schema, count: NewValues) -> "DistinctTable":
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
        column = flat(rows.column(self.count.column))
        valued = np.flatnonzero(known(column))
        is_new = np.zeros(len(column), dtype=np.bool_)
        if len(valued):
            *keys, _ = self.spec.keys
            values = alike(take(rows.select([self.count.column]), valued).column(0).chunk(0))
            pairs = pa.Table.from_arrays([*take(rows.select(keys), valued).columns, values], schema=self.spec.schema)
            pair_hashes = subkey_hashes(hashes[valued], [values])
            groups = key_order(pair_hashes, pairs)
            firsts = groups.order[groups.starts]
            table = state.table(self.spec.name)
            found = table.get(pair_hashes[firsts], take(pairs, firsts))
            absent = np.flatnonzero(~found.present)
            new = firsts[absent]
            if len(new):
                table.put(pair_hashes[new], take(pairs, new), before=chosen(found, absent))
                is_new[valued[new]] = True
        return rows.append_column(self.count.found, pa.array(is_new))
