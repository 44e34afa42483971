"""State columns that are known only once all rows of an epoch are: a table beside the row of the group gives them."""

from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from dagster_ckpt.operators.aggregates.kinds.accumulator import Accumulator, Columns, GroupedRows, Keeps
from dagster_ckpt.operators.shared.arrays.value_order import End


@dataclass(frozen=True)
class BestValue(Accumulator):
    """The value of the row that comes first by `columns`, all of them from one `end`; null if no row has them all.

    The last of the columns is the value: the least or greatest value has no other one, the first or last value has the
    column that orders it before. The next value must be known when this one is retracted, so all of them are in a table
    beside (`BestValues`). `row`: the value is all columns but the first as a struct, and only that must be there.
    """

    name: str
    columns: tuple[str, ...]
    type: pa.DataType
    end: End
    row: bool = False

    keeps: ClassVar[Keeps] = Keeps("the first or last of the values beside it")

    @property
    def fields(self) -> tuple[pa.Field, ...]:
        return (pa.field(self.name, self.type),)

    def of_rows(self, rows: GroupedRows) -> tuple[pa.Array, ...]:
        return (pa.nulls(len(rows.starts), self.type),)

    def merge(self, old: Columns, new: Columns) -> tuple[pa.Array, ...]:
        return (old[self.name],)
