"""The first values of a column in the order of another, in a list."""

import json
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dagster_ckpt.lsm.columns import Positions, take_array
from dagster_ckpt.operators.aggregates.kinds.accumulator import Accumulator, Columns, GroupedRows, Keeps
from dagster_ckpt.operators.shared.arrays.lists import alike, groups_of, lists_of, values_of
from dagster_ckpt.operators.shared.arrays.nulls import has_value
from dagster_ckpt.operators.shared.arrays.value_order import order_column


@dataclass(frozen=True)
class FirstValues(Accumulator):
    """The values of the `limit` rows with the least `by`, in that order; of rows with one `by`, the least values first.

    Rows where either is null are skipped.
    """

    column: str
    type: pa.DataType
    by: str
    by_type: pa.DataType
    limit: int

    @property
    def keeps(self) -> Keeps:
        return Keeps(f"the first {self.limit} values of {self.column}")

    @property
    def names(self) -> tuple[str, str]:
        """Its state columns: the values and their `by`."""
        pair = f"{json.dumps(self.column)} by {json.dumps(self.by)}"
        return f"_first_{self.limit}({pair})", f"_first_{self.limit}_at({pair})"

    @property
    def fields(self) -> tuple[pa.Field, ...]:
        types = (self.type, self.by_type)
        return tuple(
            pa.field(name, pa.list_(type_), nullable=False) for name, type_ in zip(self.names, types, strict=True)
        )

    def of_rows(self, rows: GroupedRows) -> tuple[pa.Array, ...]:
        value, by = rows.columns[self.column], rows.columns[self.by]
        usable = np.flatnonzero(has_value(value) & has_value(by))
        return self._first(
            rows.group_of_row[usable], take_array(value, usable), take_array(by, usable), len(rows.starts)
        )

    def merge(self, old: Columns, new: Columns) -> tuple[pa.Array, ...]:
        values, bys = ((old[name], new[name]) for name in self.names)
        return self._first(groups_of(values), values_of(values), values_of(bys), len(values[1]))

    def _first(self, groups: Positions, values: pa.Array, bys: pa.Array, count: int) -> tuple[pa.Array, ...]:
        if len(groups) == 0:
            return lists_of(groups, values, count), lists_of(groups, bys, count)
        order = np.lexsort((order_column(values).codes, order_column(bys).codes, groups))
        groups = groups[order]
        starts = np.flatnonzero(np.diff(groups, prepend=-1))
        place = np.arange(len(groups)) - np.repeat(starts, np.diff(starts, append=len(groups)))
        kept = place < self.limit
        return tuple(lists_of(groups[kept], alike(take_array(column, order[kept])), count) for column in (values, bys))
