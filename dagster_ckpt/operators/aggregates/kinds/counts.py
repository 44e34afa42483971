"""Counts: rows, rows with a value, and the greatest event time."""

import json
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dagster_ckpt.lsm.columns import to_mask
from dagster_ckpt.operators.aggregates.kinds.accumulator import COUNTS, Columns, GroupedRows, Keeps, OneColumn
from dagster_ckpt.operators.aggregates.kinds.partials import Partial, PartialAccumulator, SqlName
from dagster_ckpt.operators.shared.arrays.nulls import fill_null, has_value
from dagster_ckpt.operators.shared.state_columns import ROWS, whole_number

LAST_TIME = "_last_time"


class Count(OneColumn):
    """A number of rows."""

    keeps: ClassVar[Keeps] = COUNTS

    def merge(self, old: Columns, new: Columns) -> tuple[pa.Array, ...]:
        return (pc.add(fill_null(old[self.name], 0), new[self.name]),)


class _PartialCount(Count, PartialAccumulator):
    """The same, where SQL counts before."""

    def of_partials(self, columns: tuple[pa.Array, ...], groups: int) -> tuple[pa.Array, ...]:
        return columns


@dataclass(frozen=True)
class RowCount(_PartialCount):
    """The rows of a key: `_rows`. Every aggregate keeps it: after retractions it shows when a key has no rows left."""

    @property
    def field(self) -> pa.Field:
        return whole_number(ROWS)

    def of_rows(self, rows: GroupedRows) -> tuple[pa.Array, ...]:
        return (pa.array(rows.sizes),)

    def partials(self, name: SqlName) -> tuple[Partial, ...]:
        return (Partial("count(1)", pa.int64()),)


@dataclass(frozen=True)
class ValueCount(_PartialCount):
    """The rows of a key that have a value in one column: divides totals into means, and distinguishes null from 0."""

    column: str

    @property
    def field(self) -> pa.Field:
        return whole_number(f"_n({self.column})")

    def of_rows(self, rows: GroupedRows) -> tuple[pa.Array, ...]:
        column = rows.columns[self.column]
        if column.null_count == 0:
            return (pa.array(rows.sizes),)
        return (pa.array(np.add.reduceat(has_value(column).astype(np.int64), rows.starts)),)

    def partials(self, name: SqlName) -> tuple[Partial, ...]:
        return (Partial(f"count({name(self.column)})", pa.int64()),)


@dataclass(frozen=True)
class PairCount(Count):
    """The rows of a key that have a value in both columns."""

    columns: tuple[str, str]

    @property
    def field(self) -> pa.Field:
        return whole_number(f"_n({json.dumps(self.columns)})")

    def of_rows(self, rows: GroupedRows) -> tuple[pa.Array, ...]:
        both = np.logical_and(*(has_value(rows.columns[name]) for name in self.columns))
        return (pa.array(np.add.reduceat(both.astype(np.int64), rows.starts)),)


@dataclass(frozen=True)
class TrueCount(_PartialCount):
    """The rows of a key in which a boolean column is true."""

    column: str

    @property
    def field(self) -> pa.Field:
        return whole_number(f"_n_true({self.column})")

    def of_rows(self, rows: GroupedRows) -> tuple[pa.Array, ...]:
        is_true = to_mask(fill_null(rows.columns[self.column], False))
        return (pa.array(np.add.reduceat(is_true.astype(np.int64), rows.starts)),)

    def partials(self, name: SqlName) -> tuple[Partial, ...]:
        return (Partial(f"count_if({name(self.column)})", pa.int64()),)


@dataclass(frozen=True)
class LastTime(OneColumn, PartialAccumulator):
    """The greatest event time of a key; null without an event-time column. Used by a time to live."""

    column: str | None

    keeps: ClassVar[Keeps] = Keeps("the newest event time")

    @property
    def field(self) -> pa.Field:
        return pa.field(LAST_TIME, pa.timestamp("us"))

    def of_rows(self, rows: GroupedRows) -> tuple[pa.Array, ...]:
        if self.column is None:
            return (pa.nulls(len(rows.starts), pa.timestamp("us")),)
        time = rows.columns[self.column]
        least = np.iinfo(np.int64).min
        greatest = np.maximum.reduceat(fill_null(time.view(pa.int64()), least).to_numpy(), rows.starts)
        return (pa.array(greatest, mask=greatest == least).view(pa.timestamp("us")),)

    def merge(self, old: Columns, new: Columns) -> tuple[pa.Array, ...]:
        if self.column is None:
            return (new[LAST_TIME],)
        return (pc.max_element_wise(old[LAST_TIME], new[LAST_TIME]),)

    def partials(self, name: SqlName) -> tuple[Partial, ...]:
        assert self.column is None, "rows with an event time reach their task"
        return ()

    def of_partials(self, columns: tuple[pa.Array, ...], groups: int) -> tuple[pa.Array, ...]:
        return (pa.nulls(groups, pa.timestamp("us")),)
