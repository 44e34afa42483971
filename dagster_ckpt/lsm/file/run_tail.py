"""The tail of a run's file: all from the descriptor to the end. See `run_file` for the layout."""

import json
import struct
import zlib
from dataclasses import asdict, dataclass

import numpy as np
import pyarrow as pa

from dagster_ckpt.errors import CorruptStateError, IncompatibleStateError
from dagster_ckpt.lsm.file.blocks import Checksums, Far

FORMAT = 1
_MAGIC = b"CKPTRUN1"
_TRAILER = struct.Struct("<II8s")
_ARROW_END = struct.Struct("<i6s")
_ARROW_EOS_BYTES = 8
_HASH_BITS = 64
_BLOCK_BYTES_MAX = 1 << 24


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


def encode_tail(descriptor: Descriptor, checksums: Checksums) -> bytes:
    """The tail, up to the footer that Arrow writes."""
    encoded = json.dumps(asdict(descriptor), separators=(",", ":")).encode()
    return encoded + checksums.astype("<u4").tobytes() + _TRAILER.pack(len(encoded), len(checksums), _MAGIC)


def read_tail(name: str, data: pa.Buffer, checksum: str, far: Far | None, before: int = 0) -> Tail:
    """The tail of a file that has this checksum; `data` are its bytes, or the last of them, after `before` others.

    Raises `CorruptStateError` for bytes that are not those of the checksum, or that describe what the file cannot hold,
    `IncompatibleStateError` for those of a later release.
    """
    start = before + data.size - _checked_tail(name, data, checksum, far)
    try:
        tail = Tail(start, *_parse(name, data))
        possible = _fits(tail)
    except (KeyError, TypeError, ValueError, RecursionError, struct.error) as error:
        raise _impossible(name, f"{type(error).__name__}: {error}") from error
    if not possible:
        raise _impossible(name, str(tail.descriptor))
    return tail


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

    def has_damage() -> bool:
        return f"{zlib.crc32(memoryview(data)[tail[0] :]):08x}" != crc

    if far is not None and tail[0] >= 0:
        far.fetch([tail])
        if has_damage():
            far.renew([tail])
    if tail[0] < 0 or has_damage():
        where = "" if far is None else f", store={far.origin}"
        raise CorruptStateError(
            f"the end of a state file is damaged or cut off: read or roll back to an epoch that does not need it, and "
            f"check the disk. file={name}, bytes={data.size}{where}"
        )
    return length


def _impossible(name: str, found: str) -> CorruptStateError:
    return CorruptStateError(
        "the end of a state file describes what the file cannot hold: read or roll back to an epoch that does not need "
        f"it. file={name}, found={found[:500]}"
    )


def _fits(tail: Tail) -> bool:
    """Whether the file has what its end says: a reader takes each of these numbers as it is."""
    found = tail.descriptor
    hashes = int(found.greatest, 16) - int(found.least, 16)
    shifts = found.directory_shift, found.bloom_shift
    cells = (hashes >> shifts[0]) + 1 if 0 <= shifts[0] < _HASH_BITS else 0
    words = (hashes >> shifts[1]) + 1 if 0 <= shifts[1] < _HASH_BITS else 0
    return (
        0 <= hashes < 1 << _HASH_BITS
        and 0 <= found.tombstones <= found.rows < 1 << 31
        and 0 < found.body_offset <= tail.start
        and found.directory_cells == cells
        and 0 <= found.directory_offset <= tail.start - 4 * cells
        and found.bloom_words in (0, words)
        and 0 <= found.bloom_offset <= tail.start - 8 * found.bloom_words
        and 0 < found.block_bytes <= _BLOCK_BYTES_MAX
        and len(tail.checksums) == -(-tail.start // found.block_bytes)
        and (found.times_us is None or len(found.times_us) == 2)
    )


def _parse(name: str, data: pa.Buffer) -> tuple[Descriptor, Checksums]:
    view = memoryview(data)
    footer_bytes, _ = _ARROW_END.unpack(view[-_ARROW_END.size :])
    end = data.size - _ARROW_END.size - footer_bytes - _ARROW_EOS_BYTES
    descriptor_bytes, blocks, magic = _TRAILER.unpack(view[end - _TRAILER.size : end])
    checksums_start = end - _TRAILER.size - 4 * blocks
    if not 0 <= descriptor_bytes <= checksums_start <= end - _TRAILER.size:
        raise ValueError(f"{descriptor_bytes} bytes and {blocks} checksums in {data.size} bytes")
    plain = json.loads(bytes(view[checksums_start - descriptor_bytes : checksums_start]))
    if magic != _MAGIC or plain["format"] != FORMAT or plain["compression"] != "none":
        raise IncompatibleStateError(
            f"a state file was written by a later release: install that one. file={name}, format={plain['format']}, "
            f"compression={plain['compression']}"
        )
    # A copy: the page that ends the last block and begins the tail may be fetched again.
    checksums = np.frombuffer(view[checksums_start : end - _TRAILER.size], dtype="<u4").copy()
    return Descriptor(**plain), checksums
