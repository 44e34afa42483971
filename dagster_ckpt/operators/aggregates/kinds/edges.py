"""First and last: the value of the row with the least or greatest value of another column."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dagster_ckpt.lsm.columns import Positions
from dagster_ckpt.operators.aggregates.kinds.accumulator import Accumulator, Columns, GroupedRows, Keeps
from dagster_ckpt.operators.aggregates.kinds.extremes import furthest_codes
from dagster_ckpt.operators.shared.arrays.nulls import has_value, or_null
from dagster_ckpt.operators.shared.arrays.value_order import End, one_zero, order_column, precedes


@dataclass(frozen=True)
class Edge(Accumulator):
    """The value of the row with the least (greatest) `by`; of several such rows the least (greatest) value.

    Rows where either is null are skipped; both state columns are null where no row is left.
    """

    column: str
    type: pa.DataType
    by: str
    by_type: pa.DataType
    end: End

    keeps: ClassVar[Keeps] = Keeps("the first or last value")

    @property
    def names(self) -> tuple[str, str]:
        """Its state columns: the value and its `by`."""
        function = "first" if self.end is End.LEAST else "last"
        pair = f"{_one_word(self.column)} by {_one_word(self.by)}"
        return f"_{function}({pair})", f"_{function}_at({pair})"

    @property
    def fields(self) -> tuple[pa.Field, ...]:
        value, by = self.names
        return pa.field(value, self.type), pa.field(by, self.by_type)

    def of_rows(self, rows: GroupedRows) -> tuple[pa.Array, ...]:
        value, by = rows.columns[self.column], rows.columns[self.by]
        usable = has_value(value) & has_value(by)
        somewhere = np.logical_or.reduceat(usable, rows.starts)
        places = order_column(by).codes
        edge = furthest_codes(places, usable, rows.starts, self.end)
        tied = np.flatnonzero(usable & (places == edge[rows.group_of_row]))
        row = np.zeros(len(rows.starts), dtype=np.int64)
        row[somewhere] = self._break_ties(tied, rows.group_of_row[tied], value)
        chosen = pa.array(row)
        return tuple(or_null(one_zero(column.take(chosen)), somewhere) for column in (value, by))

    def _break_ties(self, tied: Positions, groups: Positions, value: pa.Array) -> Positions:
        """One row of each group: of the tied rows the one with the least (greatest) value."""
        starts = np.flatnonzero(np.diff(groups, prepend=-1))
        if len(starts) == len(tied):
            return tied
        codes = order_column(value.take(pa.array(tied))).codes
        furthest = furthest_codes(codes, np.ones(len(tied), dtype=np.bool_), starts, self.end)
        settled = np.zeros(len(starts), dtype=np.int64)
        best = np.flatnonzero(codes == np.repeat(furthest, np.diff(starts, append=len(tied))))
        # Rows that are equal in both columns are interchangeable.
        settled[np.searchsorted(groups[starts], groups[best])] = tied[best]
        return settled

    def merge(self, old: Columns, new: Columns) -> tuple[pa.Array, ...]:
        value, by = self.names
        # The side with the lesser (greater) `by` wins; the value breaks a tie.
        near, far = (new, old) if self.end is End.LEAST else (old, new)
        beats = pc.fill_null(precedes(near[by], far[by]), False)
        beaten = pc.fill_null(precedes(far[by], near[by]), False)
        wins_tie = pc.and_not(pc.fill_null(precedes(near[value], far[value]), False), beaten)
        use_new = pc.or_(pc.or_(beats, wins_tie), pc.is_null(old[by]))
        return tuple(pc.if_else(use_new, new[name], old[name]) for name in self.names)


def _one_word(name: str) -> str:
    """A column's name without spaces, so that no two pairs of names read the same with ` by ` between."""
    return name.replace("%", "%25").replace(" ", "%20")
