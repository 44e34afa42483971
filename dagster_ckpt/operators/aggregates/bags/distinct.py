"""The distinct values of a column, exactly: kept in a list, or counted as they are found to be new."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dagster_ckpt.lsm.columns import Positions, take_array
from dagster_ckpt.operators.aggregates.kinds.accumulator import Columns, GroupedRows, Keeps, OneColumn
from dagster_ckpt.operators.aggregates.kinds.counts import Count
from dagster_ckpt.operators.shared.arrays.lists import alike, groups_of, lists_of, values_of
from dagster_ckpt.operators.shared.arrays.nulls import has_value
from dagster_ckpt.operators.shared.arrays.value_order import order_column
from dagster_ckpt.operators.shared.state_columns import whole_number


@dataclass(frozen=True)
class DistinctValues(OneColumn):
    """The distinct values of a column as a sorted list: for groups that are merged or that expire.

    Every merge reads and writes whole lists, at about 10 million values a second.
    """

    column: str
    type: pa.DataType

    @property
    def keeps(self) -> Keeps:
        return Keeps(f"all distinct values of {self.column}", grows=True)

    @property
    def field(self) -> pa.Field:
        return pa.field(f"_distinct({self.column})", pa.list_(self.type), nullable=False)

    def of_rows(self, rows: GroupedRows) -> tuple[pa.Array, ...]:
        column = rows.columns[self.column]
        valued = np.flatnonzero(has_value(column))
        return (_distinct(rows.group_of_row[valued], take_array(column, valued), len(rows.starts)),)

    def merge(self, old: Columns, new: Columns) -> tuple[pa.Array, ...]:
        sides = (old[self.name], new[self.name])
        return (_distinct(groups_of(sides), values_of(sides), len(sides[1])),)


@dataclass(frozen=True)
class MarkedValues(Count):
    """The number of rows with a mark, the boolean column `marks`."""

    column: str

    @property
    def marks(self) -> str:
        """The column with the marks."""
        return f"_is_new({self.column})"

    @property
    def field(self) -> pa.Field:
        return whole_number(f"_n_distinct({self.column})")

    def of_rows(self, rows: GroupedRows) -> tuple[pa.Array, ...]:
        is_new = rows.columns[self.marks].cast(pa.int64()).to_numpy()
        return (pa.array(np.add.reduceat(is_new, rows.starts)),)


@dataclass(frozen=True)
class NewValues(MarkedValues):
    """The number of distinct values of a column, from rows that are marked as having a new value or not.

    The mark is the boolean column `marks`, added to the rows before (`DistinctTable`).
    """


@dataclass(frozen=True)
class NewAndGoneValues(MarkedValues):
    """As `NewValues`, where a retracted row is marked if no other row has its value."""


def _distinct(groups: Positions, values: pa.Array, count: int) -> pa.Array:
    """A list for each group of its distinct values, ascending."""
    if len(values) == 0:
        return lists_of(groups, values, count)
    codes = order_column(values).codes
    order = np.lexsort((codes, groups))
    groups, codes = groups[order], codes[order]
    is_first = np.ones(len(order), dtype=np.bool_)
    is_first[1:] = (groups[1:] != groups[:-1]) | (codes[1:] != codes[:-1])
    return lists_of(groups[is_first], alike(take_array(values, order[is_first])), count)
