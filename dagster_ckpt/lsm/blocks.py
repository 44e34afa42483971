"""Checksums over blocks of a file, checked where and when bytes are first used."""

import zlib
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dagster_ckpt.errors import CorruptStateError

BLOCK_BYTES = 256 * 1024
"""Small enough to read a few from far away, big enough that their checksums are nothing beside them."""

Checksums = npt.NDArray[np.uint32]


def checksums_of(data: memoryview, block_bytes: int) -> Checksums:
    """The CRC-32 of each block; the last one may be shorter."""
    starts = range(0, len(data), block_bytes)
    return np.array([zlib.crc32(data[start : start + block_bytes]) for start in starts], dtype=np.uint32)


@dataclass
class CheckedBytes:
    """A file's bytes, of which those before `covered` have block checksums. Bytes are checked once, then trusted."""

    name: str
    data: pa.Buffer
    covered: int
    block_bytes: int
    checksums: Checksums
    _checked: npt.NDArray[np.bool_] = field(init=False)

    def __post_init__(self) -> None:
        self._checked = np.zeros(len(self.checksums), dtype=np.bool_)

    def check_array(self, array: pa.Array) -> None:
        """Check all bytes of an array that lies in the file. Raises `CorruptStateError`."""
        for buffer in array.buffers():
            if buffer is not None and buffer.size:
                start = buffer.address - self.data.address
                self.check(start, start + buffer.size)

    def check(self, start: int, until: int) -> None:
        """Check the blocks of the bytes `[start, until)`. Raises `CorruptStateError`."""
        view = memoryview(self.data)
        first, last = start // self.block_bytes, (until - 1) // self.block_bytes
        for block in first + np.flatnonzero(~self._checked[first : last + 1]):
            begin = int(block) * self.block_bytes
            found = zlib.crc32(view[begin : min(begin + self.block_bytes, self.covered)])
            if found != self.checksums[block]:
                raise CorruptStateError(
                    f"a state file is damaged: read or roll back to an epoch that does not need it, and check the "
                    f"disk. file={self.name}, block={block}, bytes={begin}..{begin + self.block_bytes}"
                )
            self._checked[block] = True
