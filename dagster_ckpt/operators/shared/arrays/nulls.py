"""Nulls in a column: where they are, and what stands in their place."""

from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dagster_ckpt.lsm.columns import Mask, flat, to_mask


def has_value(column: pa.Array) -> Mask:
    """Where the column has a value."""
    if column.null_count == 0:
        return np.ones(len(column), dtype=np.bool_)
    return to_mask(pc.is_valid(column))


def fill_null(column: pa.Array, value: object) -> pa.Array:
    """The column with `value` in place of null."""
    return column if column.null_count == 0 else pc.fill_null(column, pa.scalar(value, column.type))


def or_null(column: pa.Array, where: Mask) -> pa.Array:
    """The column, null where `where` is False."""
    return column if where.all() else pc.if_else(pa.array(where), column, pa.scalar(None, column.type))


def without_values(rows: pa.Table, count: int) -> Mask:
    """Which of so many rows have nothing but nulls; none where there is no column."""
    if not rows.num_columns or any(column.null_count == 0 for column in rows.columns):
        return np.zeros(count, dtype=np.bool_)
    nulls = (to_mask(pc.is_null(flat(column))) for column in rows.columns)
    found: Mask = reduce(np.logical_and, nulls)
    return found
