"""Operations on Arrow columns: one chunk, rows by position, equality with nulls and NaN."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.lsm.stored_columns import widen

Positions = npt.NDArray[np.int64]
"""Row numbers, counted from 0."""

Mask = npt.NDArray[np.bool_]
"""One truth value per row."""

Plain = npt.NDArray[Any]
"""The values of a column without nulls, all of one width, as something of that width: to be moved, not to be read."""

_MIX = np.uint64(0x9E3779B97F4A7C15)
_PLAIN: dict[int, np.dtype[Any]] = {
    1: np.dtype(np.uint8),
    2: np.dtype(np.uint16),
    4: np.dtype(np.uint32),
    8: np.dtype(np.uint64),
}


def flat(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """The column as one array; copies only if it has several chunks."""
    if isinstance(column, pa.Array):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)
    if column.num_chunks == 0:
        return pa.array([], column.type)
    return concat(column.chunks)


def concat(arrays: Sequence[pa.Array]) -> pa.Array:
    """The arrays concatenated, at least one; copies if there are several.

    Raises `InvalidPipelineError` if a 32-bit offset overflows.
    """
    if len(arrays) == 1:
        return arrays[0]
    try:
        return pa.concat_arrays(arrays)
    except pa.ArrowInvalid as error:
        rows = sum(map(len, arrays))
        raise InvalidPipelineError(
            f"more than 2 GiB of one column have one key hash or were put at once, and cannot be split: spread them "
            f"over more keys, or use smaller batches. type={arrays[0].type}, rows={rows}"
        ) from error


def flatten(table: pa.Table) -> pa.Table:
    """The table with every column in one array."""
    if all(column.num_chunks == 1 for column in table.columns):
        return table
    return pa.Table.from_arrays([flat(column) for column in table.columns], schema=table.schema)


def by_itself(array: pa.Array) -> pa.Array:
    """The array without the rest of its buffers.

    Arrow validates the outermost elements in the buffers of lists, even if no row of the array has them: in a piece of
    a remote run these may not have been fetched.
    """
    return pa.concat_arrays([array]) if pa.types.is_nested(array.type) else array


def take(table: pa.Table, positions: Positions) -> pa.Table:
    """The rows at these positions, in this order."""
    return pa.Table.from_arrays([take_array(flat(column), positions) for column in table.columns], schema=table.schema)


def take_array(array: pa.Array, positions: Positions) -> pa.Array:
    """The values at these positions, in this order."""
    values = plain(array)
    return array.take(pa.array(positions)) if values is None else from_plain(np.take(values, positions), array.type)


def gather(columns: "Sequence[Column]", positions: Sequence[Positions]) -> pa.Array:
    """The values of each column at its positions, concatenated. At least one column; all have one type."""
    type_ = columns[0].type
    sources = [column.plain for column in columns if column.plain is not None]
    if len(sources) < len(columns):
        return concat([column.take(at) for column, at in zip(columns, positions, strict=True)])
    ends = np.cumsum([len(at) for at in positions]).tolist()
    out = empty(ends[-1], sources[0].dtype if columns[0].stored.type == type_ else np.dtype(f"u{type_.bit_width // 8}"))
    start = 0
    for source, at, end in zip(sources, positions, ends, strict=True):
        if source.dtype == out.dtype:
            # The default mode would copy through a buffer, because it leaves `out` unchanged if a position is invalid.
            np.take(source, at, out=out[start:end], mode="clip")
        else:
            out[start:end] = np.take(source, at)  # a narrow one: the sign is extended
        start = end
    return from_plain(out, type_)


@dataclass(frozen=True, eq=False)
class Column:
    """A column, and properties of it that are computed once.

    `stored` may be narrower than its type: see `stored_columns`. Within a nested type, it may allow fewer nulls. It may
    stand in for a column that the file lacks: see `stored_columns`.
    """

    stored: pa.Array
    type: pa.DataType

    @cached_property
    def is_narrow(self) -> bool:
        """Whether it is stored narrower than its type."""
        return bool(self.stored.type != self.type)

    @cached_property
    def plain(self) -> "Plain | None":
        """As `plain`; of a narrow column its numbers, signed."""
        if not self.is_narrow:
            return plain(self.stored)
        if not pa.types.is_integer(self.stored.type):  # of an older type, or of a file that lacks the column
            return None
        return None if self.stored.null_count else self.stored.to_numpy()

    def whole(self) -> pa.Array:
        """All values."""
        return widen(self.stored, self.type)

    def take(self, positions: Positions) -> pa.Array:
        """The values at these positions, in this order."""
        return widen(take_array(self.stored, positions), self.type)


def plain(array: pa.Array) -> Plain | None:
    """The array's values as a numpy view; None if there are nulls, or if the type has no fixed width in bytes.

    Booleans have none: they are bits.
    """
    dtype = _plain_type(array.type)
    if dtype is None or array.null_count:
        return None
    values = array.buffers()[1]
    if values is None or len(array) == 0:
        return np.empty(0, dtype)
    return np.frombuffer(values, dtype, len(array), array.offset * dtype.itemsize)


def from_plain(values: Plain, type_: pa.DataType) -> pa.Array:
    """The column with the values that `plain` returned; takes over the memory."""
    return pa.Array.from_buffers(type_, len(values), [None, pa.py_buffer(values)])


def empty(length: int, dtype: np.dtype[Any]) -> Plain:
    """An uninitialized array. From Arrow's pool: glibc returns big arrays to the system, and the next faults again."""
    return np.frombuffer(pa.allocate_buffer(length * dtype.itemsize), dtype)


def _plain_type(type_: pa.DataType) -> np.dtype[Any] | None:
    if pa.types.is_boolean(type_) or pa.types.is_null(type_):
        return None
    if not (pa.types.is_primitive(type_) or pa.types.is_decimal(type_) or pa.types.is_fixed_size_binary(type_)):
        return None
    width = type_.bit_width // 8
    return _PLAIN[width] if width in _PLAIN else np.dtype(f"V{width}")


def stretches(starts: Positions, ends: Positions) -> Positions:
    """All positions of the ranges `[start, end)`, concatenated."""
    sizes = ends - starts
    # Within a range positions rise by one; where the next range begins, they go on from its start.
    skipped = starts - np.cumsum(sizes) + sizes
    positions: Positions = np.arange(int(sizes.sum())) + np.repeat(skipped, sizes)
    return positions


def stack(tables: Sequence[pa.Table]) -> pa.Table:
    """The rows of all tables, concatenated. At least one table; all have one schema."""
    return tables[0] if len(tables) == 1 else flatten(pa.concat_tables(tables))


def to_mask(truth: pa.Array) -> Mask:
    """An Arrow column of booleans without nulls as a numpy mask."""
    mask: Mask = truth.to_numpy(zero_copy_only=False)
    return mask


def equal(left: pa.Array, right: pa.Array) -> Mask:
    """Row by row: the same value, or both null. Floating point is compared by its bits, so NaN equals NaN.

    Nested values are equal if all values within them are.
    """
    if pa.types.is_null(left.type):
        return np.ones(len(left), dtype=np.bool_)
    if pa.types.is_nested(left.type):
        codes = value_codes(concat([left, right]))
        same_code: Mask = codes[: len(left)] == codes[len(left) :]
        return same_code
    if pa.types.is_floating(left.type):
        bits = pa.binary(left.type.bit_width // 8)
        left, right = left.view(bits), right.view(bits)
    same = pc.equal(left, right)
    if same.null_count == 0:
        return to_mask(same)
    both_null = pc.and_(pc.is_null(left), pc.is_null(right))
    return to_mask(pc.or_(pc.fill_null(same, False), both_null))


def rows_equal(left: pa.Table, right: pa.Table) -> Mask:
    """For each row, whether all columns are equal on both sides, by position."""
    same = np.ones(left.num_rows, dtype=np.bool_)
    for mine, theirs in zip(left.columns, right.columns, strict=True):
        same &= equal(flat(mine), flat(theirs))
    return same


def value_codes(column: pa.Array) -> Positions:
    """One number per row, equal if and only if the values are (null equals null); all below the number of rows."""
    type_ = column.type
    if pa.types.is_struct(type_):
        return row_codes([pc.is_null(column), *column.flatten()])
    if pa.types.is_map(type_) or pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return _list_codes(column)
    if pa.types.is_nested(type_):
        return _list_codes(column.cast(pa.list_(type_.value_type)))
    if pa.types.is_floating(type_):
        column = column.view(pa.binary(type_.bit_width // 8))
    codes: Positions = column.dictionary_encode(null_encoding="encode").indices.to_numpy().astype(np.int64)
    return codes


def row_numbers(columns: Sequence[pa.Array]) -> npt.NDArray[np.uint64]:
    """One number per row: equal for equal rows, and rarely for others. At least one column."""
    numbers = np.zeros(len(columns[0]), dtype=np.uint64)
    for column in columns:
        values = plain(column)
        if values is None or values.dtype.itemsize > 8:
            values = value_codes(column)
        numbers = (numbers ^ values.astype(np.uint64)) * _MIX
        numbers ^= numbers >> np.uint64(32)
    return numbers


def row_codes(columns: Sequence[pa.Array]) -> Positions:
    """One number per row, equal if and only if all columns are. At least one column."""
    codes = value_codes(columns[0])
    for column in columns[1:]:
        more = value_codes(column)
        # Renumbered after each column, so that the product of the columns' sizes cannot overflow.
        codes = np.unique(codes * (int(more.max(initial=0)) + 1) + more, return_inverse=True)[1]
    return codes


def _list_codes(column: pa.Array) -> Positions:
    """Lists are equal if the bytes of their elements' codes are."""
    offsets = column.offsets.to_numpy().astype(np.int64)
    first, last = (int(offsets[0]), int(offsets[-1])) if len(column) else (0, 0)
    if pa.types.is_map(column.type):
        pairs = [column.keys.slice(first, last - first), column.items.slice(first, last - first)]
        codes = row_codes(pairs)
    else:
        codes = value_codes(column.values.slice(first, last - first))
    begins = pa.py_buffer(8 * (offsets - first))
    valid = pc.is_valid(column)
    code_bytes = pa.Array.from_buffers(pa.large_binary(), len(column), [None, begins, pa.py_buffer(codes)])
    return row_codes([valid, pc.if_else(valid, code_bytes, pa.scalar(b"", pa.large_binary()))])
