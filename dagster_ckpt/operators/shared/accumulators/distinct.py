"""The different values of a column, exactly: kept in a list, or counted as they are found to be new."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dagster_ckpt.lsm.columns import Positions, taken
from dagster_ckpt.operators.shared.accumulators.accumulator import Columns, GroupedRows, known
from dagster_ckpt.operators.shared.accumulators.counts import added
from dagster_ckpt.operators.shared.accumulators.lists import alike, groups_of, lists_of, values_of
from dagster_ckpt.operators.shared.accumulators.value_order import ordered


@dataclass(frozen=True)
class DistinctValues:
    """The different values of a column, in a list in their order: for groups that are merged, and that come to an end.

    Every merge reads and writes whole lists: 10 million values a second, more or less.
    """

    column: str
    type: pa.DataType

    @property
    def name(self) -> str:
        """Its state column."""
        return f"_distinct({self.column})"

    @property
    def fields(self) -> tuple[pa.Field, ...]:
        return (pa.field(self.name, pa.list_(self.type), nullable=False),)

    def of_rows(self, rows: GroupedRows) -> tuple[pa.Array, ...]:
        column = rows.columns[self.column]
        valued = np.flatnonzero(known(column))
        return (_distinct(rows.group_of_row[valued], taken(column, valued), len(rows.starts)),)

    def merged(self, old: Columns, new: Columns) -> tuple[pa.Array, ...]:
        sides = (old[self.name], new[self.name])
        return (_distinct(groups_of(sides), values_of(sides), len(sides[1])),)


@dataclass(frozen=True)
class NewValues:
    """How many different values a column has: of each row somebody has found out whether its value is a new one.

    That is said by the column `found`, of truth values, which comes with the rows.
    """

    column: str

    @property
    def found(self) -> str:
        """The column that comes with the rows."""
        return f"_is_new({self.column})"

    @property
    def name(self) -> str:
        """Its state column."""
        return f"_n_distinct({self.column})"

    @property
    def fields(self) -> tuple[pa.Field, ...]:
        return (pa.field(self.name, pa.int64(), nullable=False),)

    def of_rows(self, rows: GroupedRows) -> tuple[pa.Array, ...]:
        is_new = rows.columns[self.found].cast(pa.int64()).to_numpy()
        return (pa.array(np.add.reduceat(is_new, rows.starts)),)

    def merged(self, old: Columns, new: Columns) -> tuple[pa.Array, ...]:
        return (added(old[self.name], new[self.name]),)


def _distinct(groups: Positions, values: pa.Array, count: int) -> pa.Array:
    """A list for each group of its different values, ascending."""
    if len(values) == 0:
        return lists_of(groups, values, count)
    codes = ordered(values).codes
    order = np.lexsort((codes, groups))
    groups, codes = groups[order], codes[order]
    is_first = np.ones(len(order), dtype=np.bool_)
    is_first[1:] = (groups[1:] != groups[:-1]) | (codes[1:] != codes[:-1])
    return lists_of(groups[is_first], alike(taken(values, order[is_first])), count)
