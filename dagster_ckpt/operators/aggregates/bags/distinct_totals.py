"""Totals of distinct values: what a new value adds, and one that is gone takes away."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dagster_ckpt.lsm.columns import concat
from dagster_ckpt.operators.aggregates.bags.distinct import DistinctValues, MarkedValues
from dagster_ckpt.operators.aggregates.kinds.accumulator import Accumulator, Columns, GroupedRows, Keeps
from dagster_ckpt.operators.shared.arrays.lists import groups_of, values_of


def of_new(column: str) -> str:
    """The name under which the totals know the distinct values of a column."""
    return f"distinct {column}"


@dataclass(frozen=True)
class OfNewValues(Accumulator):
    """An accumulator over the column `of_new`: the values of the rows that are marked as new, or as gone."""

    inner: Accumulator
    marks: MarkedValues

    @property
    def keeps(self) -> Keeps:
        return self.inner.keeps

    @property
    def fields(self) -> tuple[pa.Field, ...]:
        return self.inner.fields

    def of_rows(self, rows: GroupedRows) -> tuple[pa.Array, ...]:
        column = rows.columns[self.marks.column]
        values = pc.if_else(rows.columns[self.marks.marks], column, pa.scalar(None, column.type))
        columns = {**rows.columns, of_new(self.marks.column): values}
        return self.inner.of_rows(GroupedRows(rows.starts, rows.sizes, columns))

    def merge(self, old: Columns, new: Columns) -> tuple[pa.Array, ...]:
        return self.inner.merge(old, new)


def totals_of_lists(distinct: DistinctValues, accumulators: Sequence[Accumulator], state: Columns) -> Columns:
    """The state columns of accumulators over the values of each list."""
    lists = state[distinct.name]
    # A null in each group: an accumulator has no group without a row, and skips nulls.
    values = concat([values_of([lists]), pa.nulls(len(lists), distinct.type)])
    groups = np.concatenate([groups_of([lists]), np.arange(len(lists))])
    order = np.argsort(groups, kind="stable")
    starts = np.flatnonzero(np.diff(groups[order], prepend=-1))
    rows = GroupedRows(
        starts, np.diff(starts, append=len(order)), {of_new(distinct.column): values.take(pa.array(order))}
    )
    return {
        field.name: column
        for each in accumulators
        for field, column in zip(each.fields, each.of_rows(rows), strict=True)
    }
