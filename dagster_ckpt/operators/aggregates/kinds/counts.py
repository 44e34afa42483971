"""Counts: rows, rows with a value, and the greatest event time."""

import json
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dagster_ckpt.lsm.columns import mask_of
from dagster_ckpt.operators.aggregates.kinds.accumulator import COUNTS, Columns, GroupedRows, Keeps
from dagster_ckpt.operators.aggregates.kinds.partials import Partial, SqlName
from dagster_ckpt.operators.shared.arrays.nulls import fill_null, has_value
from dagster_ckpt.operators.shared.state_columns import ROWS

LAST_TIME = "_last_time"


@dataclass(frozen=True)
class RowCount:
    """The rows of a key: `_rows`. Every aggregate keeps it: after retractions it shows when a key has no rows left."""

    keeps: ClassVar[Keeps] = COUNTS

    @property
    def fields(self) -> tuple[pa.Field, ...]:
        return (pa.field(ROWS, pa.int64(), nullable=False),)

    def of_rows(self, rows: GroupedRows) -> tuple[pa.Array, ...]:
        return (pa.array(rows.sizes),)

    def merge(self, old: Columns, new: Columns) -> tuple[pa.Array, ...]:
        return (add(old[ROWS], new[ROWS]),)

    def partials(self, name: SqlName) -> tuple[Partial, ...]:
        return (Partial("count(1)", pa.int64()),)

    def of_partials(self, columns: tuple[pa.Array, ...], groups: int) -> tuple[pa.Array, ...]:
        return columns


@dataclass(frozen=True)
class ValueCount:
    """The rows of a key that have a value in one column: divides totals into means, and distinguishes null from 0."""

    column: str

    keeps: ClassVar[Keeps] = COUNTS

    @property
    def name(self) -> str:
        """Its state column."""
        return f"_n({self.column})"

    @property
    def fields(self) -> tuple[pa.Field, ...]:
        return (pa.field(self.name, pa.int64(), nullable=False),)

    def of_rows(self, rows: GroupedRows) -> tuple[pa.Array, ...]:
        column = rows.columns[self.column]
        if column.null_count == 0:
            return (pa.array(rows.sizes),)
        return (pa.array(np.add.reduceat(has_value(column).astype(np.int64), rows.starts)),)

    def merge(self, old: Columns, new: Columns) -> tuple[pa.Array, ...]:
        return (add(old[self.name], new[self.name]),)

    def partials(self, name: SqlName) -> tuple[Partial, ...]:
        return (Partial(f"count({name(self.column)})", pa.int64()),)

    def of_partials(self, columns: tuple[pa.Array, ...], groups: int) -> tuple[pa.Array, ...]:
        return columns


@dataclass(frozen=True)
class PairCount:
    """The rows of a key that have a value in both columns."""

    columns: tuple[str, str]

    keeps: ClassVar[Keeps] = COUNTS

    @property
    def name(self) -> str:
        """Its state column."""
        return f"_n({json.dumps(self.columns)})"

    @property
    def fields(self) -> tuple[pa.Field, ...]:
        return (pa.field(self.name, pa.int64(), nullable=False),)

    def of_rows(self, rows: GroupedRows) -> tuple[pa.Array, ...]:
        both = np.logical_and(*(has_value(rows.columns[name]) for name in self.columns))
        return (pa.array(np.add.reduceat(both.astype(np.int64), rows.starts)),)

    def merge(self, old: Columns, new: Columns) -> tuple[pa.Array, ...]:
        return (add(old[self.name], new[self.name]),)


@dataclass(frozen=True)
class TrueCount:
    """The rows of a key in which a boolean column is true."""

    column: str

    keeps: ClassVar[Keeps] = COUNTS

    @property
    def name(self) -> str:
        """Its state column."""
        return f"_n_true({self.column})"

    @property
    def fields(self) -> tuple[pa.Field, ...]:
        return (pa.field(self.name, pa.int64(), nullable=False),)

    def of_rows(self, rows: GroupedRows) -> tuple[pa.Array, ...]:
        is_true = mask_of(fill_null(rows.columns[self.column], False))
        return (pa.array(np.add.reduceat(is_true.astype(np.int64), rows.starts)),)

    def merge(self, old: Columns, new: Columns) -> tuple[pa.Array, ...]:
        return (add(old[self.name], new[self.name]),)

    def partials(self, name: SqlName) -> tuple[Partial, ...]:
        return (Partial(f"count_if({name(self.column)})", pa.int64()),)

    def of_partials(self, columns: tuple[pa.Array, ...], groups: int) -> tuple[pa.Array, ...]:
        return columns


@dataclass(frozen=True)
class LastTime:
    """The greatest event time of a key; null without an event-time column. Used by a time to live."""

    column: str | None

    keeps: ClassVar[Keeps] = Keeps("the newest event time")

    @property
    def fields(self) -> tuple[pa.Field, ...]:
        return (pa.field(LAST_TIME, pa.timestamp("us")),)

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


def add(old: pa.Array, new: pa.Array) -> pa.Array:
    """The sum of two columns of counts, with 0 for a null in the old one."""
    return pc.add(fill_null(old, 0), new)
