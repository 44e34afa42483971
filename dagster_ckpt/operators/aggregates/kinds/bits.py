"""The bits of integers, together by AND, OR or XOR."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dagster_ckpt.operators.agg import Function
from dagster_ckpt.operators.aggregates.kinds.accumulator import Columns, GroupedRows
from dagster_ckpt.operators.aggregates.kinds.partials import Partial, SqlName
from dagster_ckpt.operators.shared.arrays.nulls import filled

_OF = {
    Function.BIT_AND: (np.bitwise_and, pc.bit_wise_and, -1),
    Function.BIT_OR: (np.bitwise_or, pc.bit_wise_or, 0),
    Function.BIT_XOR: (np.bitwise_xor, pc.bit_wise_xor, 0),
}


@dataclass(frozen=True)
class Bits:
    """All values of a column of integers so far; without one, what changes no value: all bits set for AND, else 0."""

    function: Function
    column: str
    type: pa.DataType

    @property
    def name(self) -> str:
        """Its state column."""
        return f"_{self.function}({self.column})"

    @property
    def fields(self) -> tuple[pa.Field, ...]:
        return (pa.field(self.name, self.type, nullable=False),)

    def of_rows(self, rows: GroupedRows) -> tuple[pa.Array, ...]:
        reduce, _, nothing = _OF[self.function]
        values = filled(rows.columns[self.column], nothing).to_numpy()
        return (pa.array(reduce.reduceat(values, rows.starts)).cast(self.type),)

    def merged(self, old: Columns, new: Columns) -> tuple[pa.Array, ...]:
        _, together, nothing = _OF[self.function]
        return (together(filled(old[self.name], nothing), new[self.name]),)

    def partials(self, name: SqlName) -> tuple[Partial, ...]:
        return (Partial(f"{self.function}({name(self.column)})", self.type),)

    def of_partials(self, columns: tuple[pa.Array, ...], groups: int) -> tuple[pa.Array, ...]:
        _, _, nothing = _OF[self.function]
        return (filled(columns[0], nothing),)
