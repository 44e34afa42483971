"""Hashes of values: the same in every epoch and on every machine, because they are part of the state's format."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dagster_ckpt.lsm.columns import flat
from dagster_ckpt.lsm.table import Hashes

_NULL = np.uint64(0xD1B54A32D192ED03)
_STEP = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_BYTE = np.uint64(0x100000001B3)


def value_hashes(columns: Sequence[pa.Array | pa.ChunkedArray], start: Hashes) -> Hashes:
    """The hashes of n rows by their values, each seeded with a number: with equal seeds, equal rows have equal hashes.

    Columns may have every type that a key may have, floats, where -0.0 equals 0.0 and all NaNs are equal, and structs,
    lists and maps of these. A map's entries count in the order in which they are stored.
    """
    mixed = start
    for column in columns:
        mixed = _mix(mixed ^ _words(flat(column)))
    return mixed


def is_hashable(type_: pa.DataType) -> bool:
    """Whether `value_hashes` takes columns of this type."""
    if _is_list(type_) or pa.types.is_struct(type_):
        return all(is_hashable(type_.field(index).type) for index in range(type_.num_fields))
    kinds = pa.types
    is_word = kinds.is_primitive(type_) and not kinds.is_interval(type_)
    return bool(is_word or _is_bytes(type_) or kinds.is_decimal128(type_) or kinds.is_null(type_))


def _mix(words: Hashes) -> Hashes:
    """Every bit of the result depends on every bit (the last steps of SplitMix64)."""
    words = words + _STEP
    words = (words ^ (words >> np.uint64(30))) * _MIX_1
    words = (words ^ (words >> np.uint64(27))) * _MIX_2
    return words ^ (words >> np.uint64(31))


def _words(column: pa.Array) -> Hashes:
    """64 bits for each value, the same for equal values."""
    if pa.types.is_null(column.type):
        return np.full(len(column), _NULL)
    values = _of_nested if pa.types.is_nested(column.type) else _of_values
    if column.null_count == 0:
        return values(column)
    valid = pc.is_valid(column)
    words = values(column.drop_null())
    found = np.full(len(column), _NULL)
    found[np.flatnonzero(valid.to_numpy(zero_copy_only=False))] = words
    return found


def _of_values(column: pa.Array) -> Hashes:
    kinds, type_ = pa.types, column.type
    if _is_bytes(type_):
        return _of_bytes(column.cast(pa.large_binary()))
    if kinds.is_boolean(type_):
        truths: Hashes = column.cast(pa.uint8()).to_numpy().astype(np.uint64)
        return truths
    if kinds.is_decimal128(type_):
        [_, values] = column.buffers()
        words = np.frombuffer(values, dtype=np.uint64)[2 * column.offset : 2 * (column.offset + len(column))]
        return words[0::2] ^ _mix(words[1::2])
    if kinds.is_floating(type_):
        numbers = column.cast(pa.float64()).to_numpy() + 0.0  # so -0.0 becomes 0.0
        return np.where(np.isnan(numbers), np.nan, numbers).view(np.uint64)
    bits = {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[type_.bit_width]
    found: Hashes = column.view(bits).to_numpy().astype(np.int64).view(np.uint64)
    return found


def _of_bytes(column: pa.Array) -> Hashes:
    """A polynomial over each value's bytes; the length distinguishes values that differ only in trailing zeros."""
    if len(column) == 0:
        return np.zeros(0, dtype=np.uint64)
    [_, offsets_buffer, data] = column.buffers()
    offsets = np.frombuffer(offsets_buffer, dtype=np.int64)[column.offset : column.offset + len(column) + 1]
    if offsets[-1] == offsets[0]:
        return _of_stretches(np.zeros(0, dtype=np.uint64), offsets)  # there may be no buffer to read
    return _of_stretches(np.frombuffer(data, dtype=np.uint8)[offsets[0] : offsets[-1]].astype(np.uint64), offsets)


def _is_list(type_: pa.DataType) -> bool:
    kinds = pa.types
    of_any_size = kinds.is_list(type_) or kinds.is_large_list(type_) or kinds.is_map(type_)
    return bool(of_any_size or kinds.is_fixed_size_list(type_))


def _is_bytes(type_: pa.DataType) -> bool:
    kinds = pa.types
    is_text = kinds.is_string(type_) or kinds.is_large_string(type_)
    return bool(is_text or kinds.is_binary(type_) or kinds.is_large_binary(type_))


def _of_nested(column: pa.Array) -> Hashes:
    return _of_fields(column.flatten(), len(column)) if pa.types.is_struct(column.type) else _of_lists(column)


def _of_fields(fields: Sequence[pa.Array], count: int) -> Hashes:
    words = np.zeros(count, dtype=np.uint64)
    for field in fields:
        words = _mix(words ^ _words(field))
    return words


def _of_lists(column: pa.Array) -> Hashes:
    """As the bytes of a string, with the hashes of a list's values in their place."""
    if len(column) == 0:
        return np.zeros(0, dtype=np.uint64)
    if pa.types.is_fixed_size_list(column.type):
        column = flat(column.cast(pa.list_(column.type.value_type)))
    offsets = column.offsets.to_numpy().astype(np.int64)
    first, count = int(offsets[0]), int(offsets[-1] - offsets[0])
    parts = [column.keys, column.items] if pa.types.is_map(column.type) else [column.values]
    return _of_stretches(_of_fields([part.slice(first, count) for part in parts], count), offsets)


def _of_stretches(letters: Hashes, offsets: npt.NDArray[np.int64]) -> Hashes:
    """The hash of the letters between each offset and the next; `letters` begins at the first offset."""
    first, sizes = int(offsets[0]), np.diff(offsets)
    if len(letters) == 0:
        return _mix(np.zeros(len(sizes), dtype=np.uint64))
    powers = np.cumprod(np.full(int(sizes.max()), _BYTE, dtype=np.uint64))
    places = np.arange(len(letters)) - np.repeat(offsets[:-1] - first, sizes)
    sums = np.concatenate([np.zeros(1, dtype=np.uint64), np.cumsum(letters * powers[places], dtype=np.uint64)])
    ends = offsets - first
    return _mix(sums[ends[1:]] - sums[ends[:-1]]) + sizes.astype(np.uint64)
