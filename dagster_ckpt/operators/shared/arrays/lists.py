"""Lists in state columns: the values of many groups as one flat column, and back."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dagster_ckpt.lsm.columns import Positions, concat
from dagster_ckpt.operators.shared.arrays.nulls import fill_null, has_value, or_null
from dagster_ckpt.operators.shared.arrays.value_order import order_column


def groups_of(sides: Sequence[pa.Array]) -> Positions:
    """The group of each value of `values_of`: list g of any side has the values of group g. A null list has none."""
    return np.concatenate([np.repeat(np.arange(len(side)), lengths(side)) for side in sides])


def values_of(sides: Sequence[pa.Array]) -> pa.Array:
    """All values of these columns of lists, one after another."""
    return concat([pc.list_flatten(side) for side in sides])


def lengths(lists: pa.Array) -> Positions:
    """The length of each list; 0 for null."""
    sizes: Positions = fill_null(pc.list_value_length(lists), 0).to_numpy().astype(np.int64)
    return sizes


def lists_of(groups: Positions, values: pa.Array, count: int) -> pa.Array:
    """A list for each of `count` groups, of the values of these groups; `groups` ascends."""
    offsets = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(np.bincount(groups, minlength=count))])
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values)


def alike(column: pa.Array) -> pa.Array:
    """The column with one zero and one NaN, also within structs, so that equal values have equal bytes."""
    if pa.types.is_struct(column.type):
        within = [or_null(alike(field), has_value(field)) for field in column.flatten()]
        return pa.StructArray.from_arrays(within, fields=list(column.type), mask=pc.is_null(column))
    if not pa.types.is_floating(column.type):
        return column
    order = order_column(column)
    return order.values(order.codes)


def alike_or_null(column: pa.Array) -> pa.Array:
    """As `alike`, with the nulls."""
    return or_null(alike(column), has_value(column))
