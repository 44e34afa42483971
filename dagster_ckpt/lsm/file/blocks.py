"""Checksums over blocks of a file, checked when their bytes are first used."""

import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dagster_ckpt.errors import CorruptStateError
from dagster_ckpt.lsm.columns import Positions, stretches

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


def row_places(array: pa.Array, first: Positions, until: Positions) -> Iterator[list[Places]]:
    """The places of the row ranges `[first, until)` of an array, step by step.

    The bytes that one step yields must be present before the next step: it reads offsets in them.
    """
    buffers, type_ = array.buffers(), array.type
    if len(array) == 0 or pa.types.is_null(type_):
        return
    if pa.types.is_struct(type_):
        children = [array.field(index) for index in range(type_.num_fields)]
        bits = _bits(buffers[0], first + array.offset, until + array.offset)
        yield from together([iter([bits]), *(row_places(child, first, until) for child in children)])
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
            yield from row_places(array.values, first, until)
        elif buffers[2] is not None:
            yield [_items(buffers[2], 1, first, until)]
    elif pa.types.is_fixed_size_list(type_):
        size = type_.list_size
        yield from together([iter([bits]), row_places(array.values, first * size, until * size)])
    elif pa.types.is_primitive(type_) or pa.types.is_decimal(type_) or pa.types.is_fixed_size_binary(type_):
        yield [*bits, _items(buffers[1], type_.bit_width // 8, first, until)]
    else:  # in other types the bytes of a row are unknown
        yield whole_buffers(buffers)


def whole_buffers(buffers: Sequence[pa.Buffer | None]) -> list[Places]:
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


BLOCK_BYTES = 16 * 1024
"""The unit read and checked for one row, also from a remote store. At this size the checksums are still only a quarter
of a per mille of the file, and checking all of it takes only a seventh longer than in blocks of 256 KiB."""

Checksums = npt.NDArray[np.uint32]

Blocks = npt.NDArray[np.int64]
"""Numbers of blocks, ascending."""

Range = tuple[int, int]
"""Bytes `[start, until)`."""


Damaged = Callable[[int, memoryview], list[Range]]
"""Returns the damaged ranges in these bytes, which begin at this offset of a file."""


class Far(Protocol):
    """Fetches bytes of a remote file to where they are read. The bytes may arrive damaged.

    With `damaged` it leaves out damaged ranges, since other readers may already trust the bytes in place.
    """

    @property
    def origin(self) -> str:
        """Where the file is stored, for errors."""
        ...

    def fetch(self, ranges: Sequence[Range], damaged: Damaged | None = None) -> None:
        """Fetch the missing bytes of ascending, disjoint ranges: all that one step needs, at once."""
        ...

    def renew(self, ranges: Sequence[Range], damaged: Damaged | None = None) -> None:
        """Fetch bytes again that are present, but damaged."""
        ...


def block_checksums(data: memoryview, block_bytes: int) -> Checksums:
    """The CRC-32 of each block; the last one may be shorter."""
    starts = range(0, len(data), block_bytes)
    return np.array([zlib.crc32(data[start : start + block_bytes]) for start in starts], dtype=np.uint32)


@dataclass
class CheckedBytes:
    """A file's bytes, of which those before `covered` have block checksums. Bytes are checked once, then trusted.

    With `far`, blocks are fetched from there before they are checked, and once more if they are damaged.
    """

    name: str
    data: pa.Buffer
    covered: int
    block_bytes: int
    checksums: Checksums
    far: Far | None = None
    _checked: npt.NDArray[np.bool_] = field(init=False)

    def __post_init__(self) -> None:
        self._checked = np.zeros(len(self.checksums), dtype=np.bool_)

    def check_rows(self, arrays: Sequence[pa.Array], rows: Positions) -> list[bool]:
        """Check these rows of arrays in the file; returns for each array whether all of it is checked now.

        Raises `CorruptStateError`.
        """
        # Not nbytes: that reads offsets, which are not yet checked, or not even fetched.
        blocks = sum(array.get_total_buffer_size() for array in arrays) / self.block_bytes
        if len(rows) >= blocks and _are_spread(rows, len(arrays[0])):
            self.check_arrays(arrays)  # nearly every block has some of these rows, and finding which costs more
            return [True] * len(arrays)
        for places in together([row_places(array, rows, rows + 1) for array in arrays]):
            self._check_places(places)
        return [self._is_checked(array) for array in arrays]

    def check_arrays(self, arrays: Sequence[pa.Array]) -> None:
        """Check all bytes of arrays in the file. Raises `CorruptStateError`."""
        self._check_places([places for array in arrays for places in whole_buffers(array.buffers())])

    def check_slices(self, arrays: Sequence[pa.Array]) -> None:
        """Check all rows of slices of arrays in the file. Raises `CorruptStateError`."""
        for places in together([row_places(each, np.array([0]), np.array([len(each)])) for each in arrays]):
            self._check_places(places)

    def check_items(self, items: npt.NDArray[Any], places: Positions) -> bool:
        """As `check_rows`, for numbers in the file outside of Arrow's arrays, which are comparatively few."""
        start, width = int(items.__array_interface__["data"][0]), items.itemsize
        if self.far is None:
            self.check(start - self.data.address, start - self.data.address + items.nbytes)
            return True
        self._check_places([(start + places * width, start + (places + 1) * width)])
        return self._are_checked(start, items.nbytes)

    def check(self, start: int, until: int) -> None:
        """Check the blocks of the bytes `[start, until)`. Raises `CorruptStateError`."""
        self.check_ranges([(start, until)])

    def check_ranges(self, ranges: Iterable[Range]) -> None:
        """Check the blocks of all these ranges of bytes, fetched together. Raises `CorruptStateError`."""
        wanted = [np.arange(start // self.block_bytes, -(-until // self.block_bytes)) for start, until in ranges]
        if wanted:
            blocks = wanted[0] if len(wanted) == 1 else np.unique(np.concatenate(wanted))
            self.check_blocks(blocks)

    def check_blocks(self, blocks: Blocks) -> None:
        """Check these blocks, fetched together. Raises `CorruptStateError`."""
        blocks = blocks[~self._checked[blocks]]
        if len(blocks) == 0:
            return
        if self.far is not None:
            self.far.fetch(self._ranges(blocks), self._damage_in)
        damaged = self._find_damage(blocks)
        if self.far is not None and len(damaged):
            self.far.renew(self._ranges(damaged), self._damage_in)
            damaged = self._find_damage(damaged)
        if len(damaged):
            start, until = self._ranges(damaged[:1])[0]
            where = "" if self.far is None else f", store={self.far.origin}"
            raise CorruptStateError(
                "a state file is damaged: read or roll back to an epoch that does not need it, and check the disk. "
                f"file={self.name}, block={damaged[0]}, bytes={start}..{until}{where}"
            )
        self._checked[blocks] = True

    def _check_places(self, places: Sequence[Places]) -> None:
        """Check the bytes at these places in memory."""
        wanted = np.zeros(len(self.checksums), dtype=np.bool_)
        for starts, ends in places:
            first, last = self._block_at(starts), self._block_at(ends - 1)
            if len(first) == 1 and ends[0] > starts[0]:
                wanted[first[0] : last[0] + 1] = True
            else:
                filled = ends > starts
                wanted[stretches(first[filled], last[filled] + 1)] = True
        self.check_blocks(np.flatnonzero(wanted & ~self._checked))

    def _is_checked(self, array: pa.Array) -> bool:
        buffers = (buffer for buffer in array.buffers() if buffer is not None)
        return all(self._are_checked(buffer.address, buffer.size) for buffer in buffers)

    def _are_checked(self, address: int, size: int) -> bool:
        first = (address - self.data.address) // self.block_bytes
        return bool(self._checked[first : (address + size - 1 - self.data.address) // self.block_bytes + 1].all())

    def _block_at(self, addresses: Positions) -> Blocks:
        blocks: Blocks = (addresses - self.data.address) // self.block_bytes
        return blocks

    def _find_damage(self, blocks: Blocks) -> Blocks:
        view, size = memoryview(self.data), self.block_bytes
        found = [zlib.crc32(view[block * size : min((block + 1) * size, self.covered)]) for block in blocks.tolist()]
        damaged: Blocks = blocks[np.array(found, dtype=np.uint32) != self.checksums[blocks]]
        return damaged

    def _damage_in(self, start: int, data: memoryview) -> list[Range]:
        """The blocks that would be damaged with these bytes in place of the present ones."""
        view, end = memoryview(self.data), start + len(data)
        damaged = []
        for block in range(start // self.block_bytes, min(-(-end // self.block_bytes), len(self.checksums))):
            lo, hi = block * self.block_bytes, min((block + 1) * self.block_bytes, self.covered)
            crc = zlib.crc32(view[lo : max(lo, start)])
            crc = zlib.crc32(data[max(lo - start, 0) : max(hi - start, 0)], crc)
            if zlib.crc32(view[min(hi, end) : hi], crc) != self.checksums[block]:
                damaged.append((lo, hi))
        return damaged

    def _ranges(self, blocks: Blocks) -> list[Range]:
        """The bytes of these blocks, neighbours together."""
        first = np.flatnonzero(np.diff(blocks, prepend=-2) != 1)
        starts = blocks[first] * self.block_bytes
        ends = (np.append(blocks[first[1:] - 1], blocks[-1]) + 1) * self.block_bytes
        return list(zip(starts.tolist(), np.minimum(ends, self.covered).tolist(), strict=True))


def _are_spread(rows: Positions, of: int) -> bool:
    """Whether these rows extend over at least half of `of` rows, rather than a run of neighbours."""
    return len(rows) > 0 and 2 * int(rows.max() - rows.min()) >= of
