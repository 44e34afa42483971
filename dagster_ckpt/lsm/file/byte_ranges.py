"""The byte ranges of rows of an Arrow array."""

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Any

import numpy as np
import pyarrow as pa

from dagster_ckpt.lsm.columns import Positions

Places = tuple[Positions, Positions]
"""Where ranges of bytes begin and end, as addresses in memory."""

_NUMBER = pa.int8()
_SHORT = (pa.string(), pa.binary(), pa.list_(_NUMBER), pa.map_(_NUMBER, _NUMBER))
_LONG = (pa.large_string(), pa.large_binary(), pa.large_list(_NUMBER))
_OFFSETS: dict[int, np.dtype[Any]] = {
    **{type_.id: np.dtype(np.int32) for type_ in _SHORT},
    **{type_.id: np.dtype(np.int64) for type_ in _LONG},
}
"""The offsets of types whose values have variable width."""


def places_of(array: pa.Array, first: Positions, until: Positions) -> Iterator[list[Places]]:
    """The places of the row ranges `[first, until)` of an array, step by step.

    The bytes that one step yields must be present before the next step: it reads offsets in them.
    """
    buffers, type_ = array.buffers(), array.type
    if len(array) == 0 or pa.types.is_null(type_):
        return
    if pa.types.is_struct(type_):
        children = [array.field(index) for index in range(type_.num_fields)]
        bits = _bits(buffers[0], first + array.offset, until + array.offset)
        yield from together([iter([bits]), *(places_of(child, first, until) for child in children)])
        return
    first, until = first + array.offset, until + array.offset
    bits = _bits(buffers[0], first, until)
    if pa.types.is_boolean(type_):
        yield [*bits, *_bits(buffers[1], first, until)]
    elif (dtype := _OFFSETS.get(type_.id)) is not None:
        offsets = np.frombuffer(buffers[1], dtype)
        yield [*bits, _items(buffers[1], dtype.itemsize, first, until + 1)]
        first, until = offsets[first].astype(np.int64), offsets[until].astype(np.int64)
        if pa.types.is_nested(type_):
            yield from places_of(array.values, first, until)
        elif buffers[2] is not None:
            yield [_items(buffers[2], 1, first, until)]
    elif pa.types.is_fixed_size_list(type_):
        size = type_.list_size
        yield from together([iter([bits]), places_of(array.values, first * size, until * size)])
    elif pa.types.is_primitive(type_) or pa.types.is_decimal(type_) or pa.types.is_fixed_size_binary(type_):
        yield [*bits, _items(buffers[1], type_.bit_width // 8, first, until)]
    else:  # in other types the bytes of a row are unknown
        yield all_of(buffers)


def all_of(buffers: Sequence[pa.Buffer | None]) -> list[Places]:
    """The places of these whole buffers."""
    return [_items(buffer, 1, np.array([0]), np.array([buffer.size])) for buffer in buffers if buffer is not None]


def together(every: Sequence[Iterator[list[Places]]]) -> Iterator[list[Places]]:
    """All first steps as one, then all second ones, and so on."""
    for step in zip_longest(*every, fillvalue=()):
        yield [places for each in step for places in each]


def _bits(buffer: pa.Buffer | None, first: Positions, until: Positions) -> list[Places]:
    return [] if buffer is None or buffer.size == 0 else [_items(buffer, 1, first // 8, (until + 7) // 8)]


def _items(buffer: pa.Buffer, width: int, first: Positions, until: Positions) -> Places:
    return buffer.address + first * width, buffer.address + until * width
