"""The state of an aggregate for each key: a few columns, built from rows and merged with earlier ones."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dagster_ckpt.lsm.columns import Mask, Positions, mask_of

Columns = Mapping[str, pa.Array]
"""Columns of equal length by name."""


@dataclass(frozen=True)
class GroupedRows:
    """Rows of at least one group, group after group: group g has the rows from `starts[g]` to the next start."""

    starts: Positions
    sizes: Positions
    columns: Columns

    @cached_property
    def group_of_row(self) -> Positions:
        """Each row's group."""
        return np.repeat(np.arange(len(self.starts)), self.sizes)


class Accumulator(Protocol):
    """A part of the state: pure, and independent of how the rows are batched.

    With three exceptions: floats agree up to rounding, a t-digest up to its error, and whether an intermediate total
    leaves the range of its type, which raises `OverflowError`, depends on the batches, as in Spark. Any total that is
    returned is exact.
    """

    @property
    def fields(self) -> tuple[pa.Field, ...]:
        """Its state columns. Equal accumulators of several aggregates are kept once."""
        ...

    def of_rows(self, rows: GroupedRows) -> tuple[pa.Array, ...]:
        """Its state columns for these rows alone, one value per group."""
        ...

    def merged(self, old: Columns, new: Columns) -> tuple[pa.Array, ...]:
        """Its state columns over the rows of both sides. In `old` all columns are null for a new key."""
        ...


def known(column: pa.Array) -> Mask:
    """Where the column has a value."""
    if column.null_count == 0:
        return np.ones(len(column), dtype=np.bool_)
    return mask_of(pc.is_valid(column))


def filled(column: pa.Array, value: object) -> pa.Array:
    """The column with `value` in place of null."""
    return column if column.null_count == 0 else pc.fill_null(column, pa.scalar(value, column.type))


def or_null(column: pa.Array, where: Mask) -> pa.Array:
    """The column, null where `where` is False."""
    return column if where.all() else pc.if_else(pa.array(where), column, pa.scalar(None, column.type))
