"""The least and the greatest value of a column, and the row that has it."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dagster_ckpt.lsm.columns import Mask, Positions
from dagster_ckpt.operators.aggregates.kinds.accumulator import Columns, GroupedRows, Keeps, OneColumn
from dagster_ckpt.operators.aggregates.kinds.partials import Partial, PartialAccumulator, SqlName
from dagster_ckpt.operators.shared.arrays.nulls import has_value, or_null
from dagster_ckpt.operators.shared.arrays.value_order import (
    GREATEST,
    LEAST,
    End,
    has_fixed_width,
    one_zero,
    order_column,
    precedes,
)


@dataclass(frozen=True)
class Extreme(OneColumn, PartialAccumulator):
    """The least or greatest value of a column; null where there is none."""

    column: str
    type: pa.DataType
    end: End

    keeps: ClassVar[Keeps] = Keeps("the least or greatest value")

    @property
    def field(self) -> pa.Field:
        return pa.field(f"_{'min' if self.end is End.LEAST else 'max'}({self.column})", self.type)

    def of_rows(self, rows: GroupedRows) -> tuple[pa.Array, ...]:
        column = rows.columns[self.column]
        order = order_column(column)
        values = has_value(column)
        somewhere = np.logical_or.reduceat(values, rows.starts)
        if not somewhere.any():
            return (pa.nulls(len(rows.starts), self.type),)
        furthest = furthest_codes(order.codes, values, rows.starts, self.end)
        # A group without a value has a code that no row has. Use any that exists: the value becomes null.
        furthest[~somewhere] = furthest[somewhere][0]
        return (or_null(order.values(furthest), somewhere),)

    def merge(self, old: Columns, new: Columns) -> tuple[pa.Array, ...]:
        return (further(old[self.name], new[self.name], self.end),)

    @property
    def in_place(self) -> bool:
        return has_fixed_width(self.type)

    def partials(self, name: SqlName) -> tuple[Partial, ...]:
        return (Partial(f"{'min' if self.end is End.LEAST else 'max'}({name(self.column)})", self.type),)

    def of_partials(self, columns: tuple[pa.Array, ...], groups: int) -> tuple[pa.Array, ...]:
        return (one_zero(columns[0]),)


def furthest_codes(codes: Positions, valid: Mask, starts: Positions, end: End) -> Positions:
    """Each group's least or greatest code among the valid rows; arbitrary if a group has none."""
    reduce, worst = (np.minimum, GREATEST) if end is End.LEAST else (np.maximum, LEAST)
    furthest: Positions = reduce.reduceat(codes if valid.all() else np.where(valid, codes, worst), starts)
    return furthest


def further(left: pa.Array, right: pa.Array, end: End) -> pa.Array:
    """Row by row the lesser or greater of the two; the other where one is null."""
    # Arrow's min_element_wise prefers any number to NaN, and takes neither booleans nor times with a zone.
    swap = precedes(right, left) if end is End.LEAST else precedes(left, right)
    return pc.if_else(pc.or_(pc.fill_null(swap, False), pc.is_null(left)), right, left)
