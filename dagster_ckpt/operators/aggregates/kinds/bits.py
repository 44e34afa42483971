"""The bits of integers, together by AND, OR or XOR."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dagster_ckpt.operators.aggregates.kinds.accumulator import Columns, GroupedRows, Keeps, OneColumn
from dagster_ckpt.operators.aggregates.kinds.partials import Partial, PartialAccumulator, SqlName
from dagster_ckpt.operators.shared.arrays.nulls import fill_null


@dataclass(frozen=True)
class Bitwise:
    """An operation on integers: of the values of groups, of two columns, and a value that changes no other."""

    name: str
    reduce: np.ufunc
    together: Callable[[pa.Array, pa.Array], pa.Array]
    nothing: int


AND = Bitwise("bit_and", np.bitwise_and, pc.bit_wise_and, -1)
OR = Bitwise("bit_or", np.bitwise_or, pc.bit_wise_or, 0)
XOR = Bitwise("bit_xor", np.bitwise_xor, pc.bit_wise_xor, 0)


@dataclass(frozen=True)
class Bits(OneColumn, PartialAccumulator):
    """All values of a column of integers so far; without one, what changes no value: all bits set for AND, else 0."""

    bitwise: Bitwise
    column: str
    type: pa.DataType

    keeps: ClassVar[Keeps] = Keeps("bits", subtracts=False)

    @property
    def field(self) -> pa.Field:
        return pa.field(f"_{self.bitwise.name}({self.column})", self.type, nullable=False)

    def of_rows(self, rows: GroupedRows) -> tuple[pa.Array, ...]:
        values = fill_null(rows.columns[self.column], self.bitwise.nothing).to_numpy()
        return (pa.array(self.bitwise.reduce.reduceat(values, rows.starts)).cast(self.type),)

    def merge(self, old: Columns, new: Columns) -> tuple[pa.Array, ...]:
        return (self.bitwise.together(fill_null(old[self.name], self.bitwise.nothing), new[self.name]),)

    def partials(self, name: SqlName) -> tuple[Partial, ...]:
        return (Partial(f"{self.bitwise.name}({name(self.column)})", self.type),)

    def of_partials(self, columns: tuple[pa.Array, ...], groups: int) -> tuple[pa.Array, ...]:
        return (fill_null(columns[0], self.bitwise.nothing),)
