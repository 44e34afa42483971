"""The distinct values of a column under each key, each with the number of its rows: for rows that are retracted."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from dagster_ckpt.lsm.columns import flat, take
from dagster_ckpt.lsm.table import Hashes, State
from dagster_ckpt.operators.aggregates.bags.distinct import NewAndGoneValues
from dagster_ckpt.operators.aggregates.distinct_table import DistinctTable, Pairs, marked
from dagster_ckpt.operators.operator import EpochContext
from dagster_ckpt.operators.shared import retraction
from dagster_ckpt.operators.shared.state_columns import ROWS, whole_number
from dagster_ckpt.protocol.manifest.manifest import StateTableSpec


@dataclass(frozen=True)
class CountedValues:
    """Finds, for `count`, the rows that bring a value to their key, and those that take its last one. A `SideTable`."""

    spec: StateTableSpec
    count: NewAndGoneValues

    @classmethod
    def of(cls, number: int, keys: tuple[str, ...], schema: pa.Schema, count: NewAndGoneValues) -> "CountedValues":
        """The table with this number, for an input with these columns."""
        spec = DistinctTable.of(number, keys, schema, count).spec
        return cls(replace(spec, schema=spec.schema.append(whole_number(ROWS))), count)

    @property
    def specs(self) -> tuple[StateTableSpec, ...]:
        return (self.spec,)

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.count.found,)

    @property
    def settles(self) -> tuple[str, ...]:
        return ()

    def taken_in(self, hashes: Hashes, rows: pa.Table, state: State, context: EpochContext, *, back: bool) -> pa.Table:
        """The rows with one more column, `count.found`: True in one row of each value that its key has only now.

        Of retracted rows (`back`), in one row of each value that its key no longer has.
        """
        pairs = Pairs.of(self.spec, self.count.column, hashes, rows)
        firsts = pairs.firsts
        if len(firsts) == 0:
            return marked(rows, self.count.found, firsts)
        table, keys = state.table(self.spec.name), take(pairs.rows, firsts)
        found = table.get(pairs.hashes[firsts], keys)
        before = np.zeros(len(firsts), dtype=np.int64)
        before[found.present] = flat(found.rows.column(ROWS)).to_numpy()
        # Within an epoch, rows may be retracted before they are added.
        now = before - pairs.groups.sizes if back else before + pairs.groups.sizes
        put = pa.Table.from_arrays([*keys.columns, pa.array(now)], schema=self.spec.schema)
        table.put(pairs.hashes[firsts], put, before=found)
        return marked(rows, self.count.found, pairs.valued[firsts[(before > 0) != (now > 0)]])

    def settled(self, state: State, context: EpochContext) -> Iterator[tuple[Hashes, pa.Table]]:
        """Drop the values without rows. Raises `CorruptStateError` if more rows were retracted than added."""
        retraction.drop_emptied(self.spec, state, (), ())
        return iter(())
