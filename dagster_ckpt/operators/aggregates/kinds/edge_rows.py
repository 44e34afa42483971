"""The first or the last row of a group, as a struct of some columns."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from dagster_ckpt.lsm.columns import Positions, concat, take_array
from dagster_ckpt.operators.aggregates.kinds.accumulator import Accumulator, Columns, GroupedRows, Keeps
from dagster_ckpt.operators.shared.arrays.lists import alike_or_null
from dagster_ckpt.operators.shared.arrays.nulls import has_value
from dagster_ckpt.operators.shared.arrays.value_order import End
from dagster_ckpt.operators.shared.ranked.order_by import OrderColumn

_SIDES = 2


@dataclass(frozen=True)
class EdgeRow(Accumulator):
    """The row with the least (greatest) `by`; of several such rows the one with the least (greatest) columns, in order.

    A null loses. Rows where `by` is null are skipped; all state columns are null where no row is left.
    """

    columns: tuple[str, ...]
    types: tuple[pa.DataType, ...]
    by: str
    by_type: pa.DataType
    end: End

    keeps: ClassVar[Keeps] = Keeps("the first or last row")

    @property
    def names(self) -> tuple[str, ...]:
        """Its state columns: those of the row, then its `by`."""
        function = "first" if self.end is End.LEAST else "last"
        row = f"_{function}_row({json.dumps(self.columns)} by {json.dumps(self.by)}"
        return (*(f"{row}, {at})" for at in range(len(self.columns))), f"{row}, at)")

    @property
    def type(self) -> pa.DataType:
        """The type of the result."""
        return row_type(self.columns, self.types)

    @property
    def fields(self) -> tuple[pa.Field, ...]:
        return tuple(pa.field(*field) for field in zip(self.names, (*self.types, self.by_type), strict=True))

    def of_rows(self, rows: GroupedRows) -> tuple[pa.Array, ...]:
        columns = [rows.columns[name] for name in (*self.columns, self.by)]
        return self._edges(rows.group_of_row, columns, len(rows.starts))

    def merge(self, old: Columns, new: Columns) -> tuple[pa.Array, ...]:
        count = len(new[self.names[0]])
        by_group = np.arange(_SIDES * count).reshape(_SIDES, count).T.ravel()
        columns = [take_array(concat([old[name], new[name]]), by_group) for name in self.names]
        return self._edges(np.repeat(np.arange(count), _SIDES), columns, count)

    def result(self, state: Columns) -> pa.Array:
        """The rows as structs."""
        *names, by = self.names
        return struct_of(self.columns, [state[name] for name in names], ~has_value(state[by]))

    def _edges(self, groups: Positions, columns: Sequence[pa.Array], count: int) -> tuple[pa.Array, ...]:
        """One row of each group, of rows that are sorted by it."""
        *values, by = columns
        at = np.flatnonzero(has_value(by))
        row = np.full(count, -1, dtype=np.int64)
        if len(at):
            places = OrderColumn("", descending=self.end is End.GREATEST).codes(take_array(by, at))
            starts = np.flatnonzero(np.diff(groups[at], prepend=-1))
            best = np.repeat(np.minimum.reduceat(places, starts), np.diff(starts, append=len(at)))
            at = at[places == best]
            if len(at) > len(starts):
                order = OrderColumn("", descending=self.end is End.GREATEST)
                codes = [order.codes(take_array(column, at)) for column in reversed(values)]
                at = at[np.lexsort((*codes, groups[at]))]
            firsts = at[np.diff(groups[at], prepend=-1) != 0]
            row[groups[firsts]] = firsts
        chosen = pa.array(row, mask=row < 0)
        return tuple(alike_or_null(column.take(chosen)) for column in columns)


def row_type(names: Sequence[str], types: Sequence[pa.DataType]) -> pa.DataType:
    """That of a whole row of columns."""
    return pa.struct([pa.field(name, type_) for name, type_ in zip(names, types, strict=True)])


def struct_of(names: Sequence[str], columns: Sequence[pa.Array], absent: np.ndarray | None = None) -> pa.Array:
    """Rows of columns as structs; null where they are `absent`."""
    fields = list(row_type(names, [column.type for column in columns]))
    mask = None if absent is None else pa.array(absent)
    return pa.StructArray.from_arrays(list(columns), fields=fields, mask=mask)
