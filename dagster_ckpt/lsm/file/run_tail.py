"""The tail of a run's file: all from the descriptor to the end. See `run_file` for the layout."""

import json
import struct
import zlib
from dataclasses import asdict, dataclass

import numpy as np
import pyarrow as pa

from dagster_ckpt.errors import CorruptStateError, IncompatibleStateError
from dagster_ckpt.lsm.file.blocks import Checksums, Far

FORMAT = 2
"""Format 1, that of release 0.1.0, has no filter, times or `_before`, and half as many cells in its directory."""
_MAGIC = b"CKPTRUN1"
_TRAILER = struct.Struct("<II8s")
_ARROW_END = struct.Struct("<i6s")
_ARROW_EOS_BYTES = 8


@dataclass(frozen=True)
class Descriptor:
    """What a reader must know before it reads. Hashes are 16 hexadecimal digits: not every JSON reader has 64 bits.

    `bloom_words` is 0 if there is no filter.
    """

    format: int
    sort: str
    rows: int
    tombstones: int
    least: str
    greatest: str
    body_offset: int
    directory_offset: int
    directory_cells: int
    directory_shift: int
    block_bytes: int
    compression: str = "none"
    bloom_offset: int = 0
    bloom_words: int = 0
    bloom_shift: int = 0
    times_us: tuple[int, int] | None = None


@dataclass(frozen=True)
class Tail:
    """The contents of a file's tail, and where it begins."""

    start: int
    descriptor: Descriptor
    checksums: Checksums


def tail_of(descriptor: Descriptor, checksums: Checksums) -> bytes:
    """The tail, up to the footer that Arrow writes."""
    encoded = json.dumps(asdict(descriptor), separators=(",", ":")).encode()
    return encoded + checksums.astype("<u4").tobytes() + _TRAILER.pack(len(encoded), len(checksums), _MAGIC)


def read_tail(name: str, data: pa.Buffer, checksum: str, far: Far | None) -> Tail:
    """The tail of a file that has this checksum.

    Raises `CorruptStateError` for bytes that are not those of the checksum, `IncompatibleStateError` for those of a
    later release.
    """
    start = data.size - _checked_tail(name, data, checksum, far)
    return Tail(start, *_parsed(name, data))


def tail_bytes(checksum: str) -> int:
    """The length of the tail of a file that has this checksum. Raises `CorruptStateError` for a malformed one."""
    length, _, _ = checksum.partition(":")
    if not (length.isascii() and length.isdigit()) or int(length) < _TRAILER.size + _ARROW_EOS_BYTES + _ARROW_END.size:
        raise CorruptStateError(
            f"a manifest names a state file with a malformed checksum: roll back to an epoch before it. "
            f"checksum={checksum!r}"
        )
    return int(length)


def _checked_tail(name: str, data: pa.Buffer, checksum: str, far: Far | None) -> int:
    """The tail's length, after checking its bytes."""
    crc = checksum.rpartition(":")[2]
    length = tail_bytes(checksum)
    tail = data.size - length, data.size

    def damaged() -> bool:
        return f"{zlib.crc32(memoryview(data)[tail[0] :]):08x}" != crc

    if far is not None and tail[0] >= 0:
        far.fetch([tail])
        if damaged():
            far.renew([tail])
    if tail[0] < 0 or damaged():
        where = "" if far is None else f", store={far.origin}"
        raise CorruptStateError(
            f"the end of a state file is damaged or cut off: read or roll back to an epoch that does not need it, and "
            f"check the disk. file={name}, bytes={data.size}{where}"
        )
    return length


def _parsed(name: str, data: pa.Buffer) -> tuple[Descriptor, Checksums]:
    view = memoryview(data)
    footer_bytes, _ = _ARROW_END.unpack(view[-_ARROW_END.size :])
    end = data.size - _ARROW_END.size - footer_bytes - _ARROW_EOS_BYTES
    descriptor_bytes, blocks, magic = _TRAILER.unpack(view[end - _TRAILER.size : end])
    checksums_start = end - _TRAILER.size - 4 * blocks
    plain = json.loads(bytes(view[checksums_start - descriptor_bytes : checksums_start]))
    if magic != _MAGIC or plain["format"] > FORMAT or plain["compression"] != "none":
        raise IncompatibleStateError(
            f"a state file was written by a later release: install that one. file={name}, format={plain['format']}, "
            f"compression={plain['compression']}"
        )
    # A copy: the page that ends the last block and begins the tail may be fetched again.
    checksums = np.frombuffer(view[checksums_start : end - _TRAILER.size], dtype="<u4").copy()
    # Format 1 has a field `bloom`, which is null.
    return Descriptor(**{name: value for name, value in plain.items() if name != "bloom"}), checksums
