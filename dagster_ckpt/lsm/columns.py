"""The few things done to Arrow columns everywhere: one chunk, rows by position, true equality."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Positions = npt.NDArray[np.int64]
"""Row numbers, counted from 0."""

Mask = npt.NDArray[np.bool_]
"""One truth value per row."""


def flat(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """The column as one array; copies only where it lies in several chunks."""
    if isinstance(column, pa.Array):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)
    if column.num_chunks == 0:
        return pa.array([], column.type)
    whole = column.combine_chunks()
    if isinstance(whole, pa.ChunkedArray):
        raise OverflowError(f"a column of more than 2 GiB cannot be one array. type={column.type}, rows={len(column)}")
    return whole


def flatten(table: pa.Table) -> pa.Table:
    """The table with every column in one array."""
    if all(column.num_chunks == 1 for column in table.columns):
        return table
    return pa.Table.from_arrays([flat(column) for column in table.columns], schema=table.schema)


def take(table: pa.Table, positions: Positions) -> pa.Table:
    """The rows at these positions, in this order."""
    chosen = pa.array(positions)
    return pa.Table.from_arrays([flat(column).take(chosen) for column in table.columns], schema=table.schema)


def stack(tables: list[pa.Table]) -> pa.Table:
    """The rows of all tables, one after another. At least one table; all have one schema."""
    return tables[0] if len(tables) == 1 else flatten(pa.concat_tables(tables))


def mask_of(truth: pa.Array) -> Mask:
    """An Arrow column of truth values without nulls as a numpy one."""
    mask: Mask = truth.to_numpy(zero_copy_only=False)
    return mask


def equal(left: pa.Array, right: pa.Array) -> Mask:
    """Row by row: the same value, or both null. Floating point is compared by its bits, so NaN equals NaN."""
    if pa.types.is_floating(left.type):
        bits = pa.int64() if left.type.bit_width == 64 else pa.int32()
        left, right = left.view(bits), right.view(bits)
    same = pc.equal(left, right)
    if same.null_count == 0:
        return mask_of(same)
    both_null = pc.and_(pc.is_null(left), pc.is_null(right))
    return mask_of(pc.or_(pc.fill_null(same, False), both_null))


def rows_equal(left: pa.Table, right: pa.Table) -> Mask:
    """Row by row: whether all columns are equal, by position."""
    same = np.ones(left.num_rows, dtype=np.bool_)
    for mine, theirs in zip(left.columns, right.columns, strict=True):
        same &= equal(flat(mine), flat(theirs))
    return same
