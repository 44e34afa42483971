"""All values of a group, equal ones counted: for aggregates that no smaller state gives."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dagster_ckpt.lsm.columns import Positions, concat, take_array
from dagster_ckpt.operators.aggregates.kinds.accumulator import Accumulator, Columns, GroupedRows, Keeps
from dagster_ckpt.operators.shared.arrays.lists import alike_or_null, groups_of, lists_of, values_of
from dagster_ckpt.operators.shared.arrays.nulls import has_value
from dagster_ckpt.operators.shared.arrays.value_order import order_column


@dataclass(frozen=True)
class Bags:
    """The bags of `size` groups: distinct rows of some columns, each with how often it is there.

    By group, and within a group ascending by the columns, the first one first; null is the last.
    """

    size: int
    groups: Positions
    columns: tuple[pa.Array, ...]
    counts: Positions

    @classmethod
    def of(cls, size: int, groups: Positions, columns: Sequence[pa.Array], counts: Positions) -> "Bags":
        """The bags of rows in any order, in which equal ones may come several times. A count may be negative, or 0.

        With several `counts` of each row, those before a change and after it, so have the bags.
        """
        columns = list(map(alike_or_null, columns))
        if len(groups) == 0:
            return cls(size, groups, tuple(columns), counts)
        codes = [code for column in reversed(columns) for code in _codes(column)]
        order = np.lexsort((*codes, groups))
        begins = np.zeros(len(order), dtype=np.bool_)
        begins[0] = True
        for each in (groups, *codes):
            sorted_ = each[order]
            begins[1:] |= sorted_[1:] != sorted_[:-1]
        starts = np.flatnonzero(begins)
        firsts = order[starts]
        summed = np.add.reduceat(counts[..., order], starts, axis=-1)
        return cls(size, groups[firsts], tuple(take_array(column, firsts) for column in columns), summed)

    def only(self, wanted: Positions) -> "Bags":
        """The rows at these positions, which ascend."""
        columns = tuple(take_array(column, wanted) for column in self.columns)
        return Bags(self.size, self.groups[wanted], columns, self.counts[wanted])

    @property
    def starts(self) -> Positions:
        """Where a group with rows begins."""
        return np.flatnonzero(np.diff(self.groups, prepend=-1))

    @property
    def before(self) -> Positions:
        """How many rows of its group come before each one."""
        if len(self.groups) == 0:
            return self.counts
        starts, first = self.starts, np.cumsum(self.counts) - self.counts
        return first - np.repeat(first[starts], np.diff(starts, append=len(self.groups)))

    def spread(self, values: pa.Array) -> pa.Array:
        """One value of each group that has rows, for all groups: null for the others."""
        there = np.zeros(self.size, dtype=np.bool_)
        there[self.groups] = True
        if there.all():
            return values
        return values.take(pa.array(np.cumsum(there) - 1, mask=~there))


BagFunction = Callable[[Bags], pa.Array]
"""One value for each group; `Bags` has positive counts alone."""


def usable(columns: Sequence[pa.Array], required: int) -> Positions:
    """The rows that are in a bag: those without a null in the first `required` columns."""
    if required == 0:
        return np.arange(len(columns[0]))
    return np.flatnonzero(np.logical_and.reduce([has_value(column) for column in columns[:required]]))


@dataclass(frozen=True)
class RowBag(Accumulator):
    """The bag of some columns in the row of the group, as lists: for groups that are merged or that expire.

    Every merge reads and writes whole lists. `required` as in `usable`. With a `limit` only the first rows are kept.
    """

    columns: tuple[str, ...]
    types: tuple[pa.DataType, ...]
    required: int
    limit: int | None = None

    @property
    def keeps(self) -> Keeps:
        if self.limit is not None:
            return Keeps(f"the first {self.limit} rows")
        return Keeps(f"all values of {', '.join(self.columns)}", grows=True)

    @property
    def names(self) -> tuple[str, ...]:
        """Its state columns: a list of each column, then the counts."""
        bag = f"_bag({json.dumps([self.columns, self.required, self.limit])}"
        return (*(f"{bag}, {at})" for at in range(len(self.columns))), f"{bag}, counts)")

    @property
    def fields(self) -> tuple[pa.Field, ...]:
        types = (*self.types, pa.int64())
        return tuple(
            pa.field(name, pa.list_(type_), nullable=False) for name, type_ in zip(self.names, types, strict=True)
        )

    def of_rows(self, rows: GroupedRows) -> tuple[pa.Array, ...]:
        columns = [rows.columns[name] for name in self.columns]
        at = usable(columns, self.required)
        ones = np.ones(len(at), dtype=np.int64)
        taken_ = [take_array(column, at) for column in columns]
        return self._lists(Bags.of(len(rows.starts), rows.group_of_row[at], taken_, ones))

    def merge(self, old: Columns, new: Columns) -> tuple[pa.Array, ...]:
        return self._lists(self._of_lists([(old[name], new[name]) for name in self.names]))

    def bags(self, state: Columns) -> Bags:
        """The bags of groups with these state columns."""
        return self._of_lists([(state[name],) for name in self.names])

    def _lists(self, bags: Bags) -> tuple[pa.Array, ...]:
        if self.limit is not None:
            bags = bags.only(np.flatnonzero(bags.before < self.limit))
        columns = (*bags.columns, pa.array(bags.counts))
        return tuple(lists_of(bags.groups, concat([column]), bags.size) for column in columns)

    def _of_lists(self, sides: Sequence[Sequence[pa.Array]]) -> Bags:
        *columns, counts = map(values_of, sides)
        size = len(sides[0][-1])
        return Bags.of(size, groups_of(sides[0]), columns, counts.to_numpy().astype(np.int64))


@dataclass(frozen=True)
class BagResult(Accumulator):
    """What a function makes of the bag of some columns, which is in a table beside the row (`BagTable`).

    The state column is known once all rows of the epoch are. `required` as in `usable`. `empty` is the value of a group
    without a row in the bag.
    """

    name: str
    columns: tuple[str, ...]
    type: pa.DataType
    function: BagFunction = field(compare=False)  # the name says which
    required: int
    empty: pa.Scalar | None = None

    keeps: ClassVar[Keeps] = Keeps("results over the values beside it")

    @property
    def fields(self) -> tuple[pa.Field, ...]:
        return (pa.field(self.name, self.type),)

    def of_rows(self, rows: GroupedRows) -> tuple[pa.Array, ...]:
        return (self.none(len(rows.starts)),)

    def merge(self, old: Columns, new: Columns) -> tuple[pa.Array, ...]:
        return (pc.coalesce(old[self.name], new[self.name]),)  # a new group begins with none

    def none(self, size: int) -> pa.Array:
        """The values of groups whose bags are empty."""
        return pa.nulls(size, self.type) if self.empty is None else pa.repeat(self.empty, size)


def _codes(column: pa.Array) -> tuple[Positions, ...]:
    """What orders the column, the least significant first."""
    if column.null_count == 0:
        return (order_column(column).codes,)
    is_null = ~has_value(column)
    return np.where(is_null, 0, order_column(column).codes), is_null.astype(np.int64)
