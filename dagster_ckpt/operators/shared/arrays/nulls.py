"""Nulls in a column: where they are, and what stands in their place."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dagster_ckpt.lsm.columns import Mask, to_mask


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
