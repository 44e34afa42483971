"""A total order of whole rows, so that the row that is kept does not depend on the order of arrival.

Within a column it is the order of `arrays.value_order` where there is one, except that floats compare by their
bits: -0.0 comes before 0.0. Structs compare by their fields, lists by their values from the first one on, maps by their
entries as stored; within a nested value, null is greater than any value.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.lsm.columns import Positions, flat, stretches, take_array
from dagster_ckpt.operators.shared.arrays.nulls import has_value
from dagster_ckpt.operators.shared.arrays.value_order import GREATEST, End, is_orderable, order_column

_SIGNED = {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}


def has_total_order(type_: pa.DataType) -> bool:
    """Whether rows with a column of this type can be ordered."""
    if pa.types.is_null(type_) or is_orderable(type_) or _is_word(type_):
        return True
    if _is_list(type_) or pa.types.is_fixed_size_list(type_):
        return has_total_order(type_.value_type)
    if pa.types.is_map(type_):
        return has_total_order(type_.key_type) and has_total_order(type_.item_type)
    return bool(pa.types.is_struct(type_) and all(has_total_order(field.type) for field in type_))


def furthest_rows(order: Positions, sizes: Positions, columns: Sequence[pa.Array], end: End) -> Positions:
    """One row of each group: the least or greatest by the first column; ties are broken by the next column.

    `order` has the rows group after group, `sizes` of each (all above 0). A null loses to any value, at either end. If
    rows are equal in all columns, it is the first in `order`.
    """
    ends = np.cumsum(sizes)
    found: Positions = order[ends - sizes]
    contested = np.flatnonzero(sizes > 1)
    left = order[stretches((ends - sizes)[contested], ends[contested])]
    groups = np.repeat(contested, sizes[contested])
    for column in columns:
        starts = np.flatnonzero(np.diff(groups, prepend=-1))
        if len(starts) == len(groups):
            break
        codes = _codes(take_array(column, left), end)
        best = (np.minimum if end is End.LEAST else np.maximum).reduceat(codes, starts)
        still = np.flatnonzero(codes == np.repeat(best, np.diff(starts, append=len(groups))))
        left, groups = left[still], groups[still]
    starts = np.flatnonzero(np.diff(groups, prepend=-1))
    found[groups[starts]] = left[starts]
    return found


def total_codes(column: pa.Array) -> Positions:
    """One number per row, ordered and equal as the values are; null is the greatest."""
    return _codes(column, End.LEAST)


def _codes(column: pa.Array, end: End) -> Positions:
    """One number per row, ordered and equal as the values are; null is the last choice at this end."""
    codes = _values(column)
    if column.null_count == 0:
        return codes
    valid = has_value(column)
    ranks = np.full(len(codes), -1, dtype=np.int64)
    ranks[valid] = np.unique(codes[valid], return_inverse=True)[1]
    if end is End.LEAST:
        ranks[~valid] = len(ranks)
    return ranks


def _values(column: pa.Array) -> Positions:
    """One number per row, ordered and equal as the values are; arbitrary for null."""
    type_ = column.type
    if pa.types.is_null(type_) or len(column) == 0:
        return np.zeros(len(column), dtype=np.int64)
    if pa.types.is_floating(type_):
        bits: Positions = column.cast(pa.float64()).fill_null(0.0).to_numpy().view(np.int64)
        return np.where(bits < 0, bits ^ GREATEST, bits)
    if is_orderable(type_):
        return order_column(column).codes
    if _is_word(type_):
        words: Positions = column.view(_SIGNED[type_.bit_width]).fill_null(0).to_numpy().astype(np.int64)
        return words
    if pa.types.is_struct(type_):
        return _ranks_of_tuples([_codes(child, End.LEAST) for child in column.flatten()], len(column))
    return _ranks_of_lists(column if _is_list(type_) or pa.types.is_map(type_) else _as_list(column))


def _ranks_of_tuples(codes: Sequence[Positions], count: int) -> Positions:
    """The ranks of rows by several numbers, the first of them first."""
    ranks = np.zeros(count, dtype=np.int64)
    for more in codes:
        # Ranked again each time, so that the product of both sizes cannot overflow.
        dense = np.unique(more, return_inverse=True)[1]
        ranks = np.unique(ranks * (int(dense.max(initial=0)) + 1) + dense, return_inverse=True)[1]
    return ranks


def _ranks_of_lists(column: pa.Array) -> Positions:
    """The ranks of lists, as those of byte strings that spell the ranks of their values."""
    offsets = column.offsets.to_numpy().astype(np.int64)
    first, last = int(offsets[0]), int(offsets[-1])
    if pa.types.is_map(column.type):
        pairs = [_codes(each.slice(first, last - first), End.LEAST) for each in (column.keys, column.items)]
        codes = _ranks_of_tuples(pairs, last - first)
    else:
        codes = np.unique(_codes(column.values.slice(first, last - first), End.LEAST), return_inverse=True)[1]
    letters = pa.py_buffer(codes.astype(">u8").tobytes())  # big-endian, as byte strings compare
    begins = pa.py_buffer((8 * (offsets - first)).tobytes())
    words = pa.Array.from_buffers(pa.large_binary(), len(column), [None, begins, letters])
    return order_column(words).codes


def _as_list(column: pa.Array) -> pa.Array:
    return flat(pc.cast(column, pa.list_(column.type.value_type)))


def _is_list(type_: pa.DataType) -> bool:
    return bool(pa.types.is_list(type_) or pa.types.is_large_list(type_))


def _is_word(type_: pa.DataType) -> bool:
    """Whether values are machine words, ordered as integers whatever they mean."""
    return bool(pa.types.is_primitive(type_) and not pa.types.is_boolean(type_) and type_.bit_width in _SIGNED)


def check_total_order(schema: pa.Schema) -> None:
    """Any two rows can be ordered."""
    for field in schema:
        if not has_total_order(field.type):
            raise InvalidPipelineError(
                "which of several rows is kept must not depend on their order, and values of this type have none: cast "
                f"the column, or leave it out. column={field.name}, type={field.type}"
            )
