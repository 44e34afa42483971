"""The values of a column under each key in their order, so that the next one is known when the first is retracted."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dagster_ckpt.lsm.columns import flat, flatten, take
from dagster_ckpt.lsm.table import Hashes, State
from dagster_ckpt.operators.aggregates.bags.bags import usable
from dagster_ckpt.operators.aggregates.kinds.edge_rows import struct_of
from dagster_ckpt.operators.aggregates.kinds.settled import BestValue
from dagster_ckpt.operators.operator import EpochContext
from dagster_ckpt.operators.shared.arrays.lists import alike_or_null
from dagster_ckpt.operators.shared.arrays.value_order import End
from dagster_ckpt.operators.shared.ranked.best_rows import BestRows
from dagster_ckpt.operators.shared.ranked.order_by import OrderColumn, RowOrder
from dagster_ckpt.operators.shared.zsets.epoch_rows import EpochRows
from dagster_ckpt.operators.shared.zsets.zset import ZSet
from dagster_ckpt.protocol.manifest.manifest import StateTableSpec


@dataclass(frozen=True)
class BestValues:
    """A `SideTable` of an input that updates and deletes rows: the bag of values of each key, and the first of them.

    Its columns are named by their place: a value may be that of a key column, and a column both `by` and value.
    """

    keys: tuple[str, ...]
    best: BestValue
    arrived: EpochRows
    values: BestRows

    @classmethod
    def of(cls, number: int, keys: tuple[str, ...], schema: pa.Schema, best: BestValue) -> "BestValues":
        """The tables with this number, for an input with these columns."""
        key_fields = [schema.field(key) for key in keys]
        names = [f"_value_{place}" for place in range(len(best.columns))]
        fields = [
            pa.field(name, schema.field(column).type, nullable=best.row and place > 0)
            for place, (name, column) in enumerate(zip(names, best.columns, strict=True))
        ]
        order = RowOrder(tuple(OrderColumn(name, descending=best.end is End.GREATEST) for name in names), tuple(names))
        arrived = EpochRows.of(f"arrived_{number}", key_fields, fields)
        values = BestRows.of(f"values_{number}", key_fields, fields, order, 1)
        return cls(keys, best, arrived, values)

    @property
    def specs(self) -> tuple[StateTableSpec, ...]:
        return self.arrived.spec, self.values.spec

    @property
    def columns(self) -> tuple[str, ...]:
        return ()

    @property
    def settles(self) -> tuple[str, ...]:
        return (self.best.name,)

    def take_in(self, hashes: Hashes, rows: pa.Table, state: State, context: EpochContext, *, back: bool) -> pa.Table:
        """Count the values of these rows; the rows stay as they are."""
        columns = [flat(rows.column(name)) for name in self.best.columns]
        valued = usable(columns, 1 if self.best.row else len(columns))
        keys = take(rows.select(list(self.keys)), valued)
        values = [alike_or_null(column.take(pa.array(valued))) for column in columns]
        counted = pa.Table.from_arrays([*keys.columns, *values], names=list(self.arrived.spec.keys))
        weights = np.full(len(valued), -1 if back else 1)
        self.arrived.add(ZSet(hashes[valued], counted, weights), state, context)
        return rows

    def settle(self, state: State, context: EpochContext) -> Iterator[tuple[Hashes, pa.Table]]:
        """The keys whose first value is another one now, with that value."""
        others = self.values.tree.others
        field = pa.field(self.best.name, self.best.type)
        for _, change in self.values.changes(self.arrived.net(state, context), state, context):
            row = np.full(len(change.hashes), -1, dtype=np.int64)
            row[change.after.nodes] = np.arange(len(change.after.nodes))
            kept = [flat(change.after.rows.column(name)) for name in others]
            values = struct_of(self.best.columns[1:], kept[1:]) if self.best.row else kept[-1]
            first = values.take(pa.array(row, mask=row < 0))
            yield change.hashes, flatten(change.keys.append_column(field, first))
