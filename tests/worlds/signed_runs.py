"""Runs' files whose end says something else and has the right checksum all the same, as no damage leaves it."""

import json
import struct
import zlib
from collections.abc import Mapping

_TRAILER = struct.Struct("<II8s")
_ARROW_END = struct.Struct("<i6s")
_EOS_BYTES = 8


def resigned(data: bytes, change: Mapping[str, object]) -> tuple[bytes, str]:
    """The file with other values in its descriptor, and the checksum that a manifest would have for it."""
    start, checksums, end = _places(data)
    encoded = json.dumps({**descriptor_of(data), **change}).encode()
    _, blocks, magic = _TRAILER.unpack(data[end - _TRAILER.size : end])
    trailer = _TRAILER.pack(len(encoded), blocks, magic)
    tail = encoded + data[checksums : end - _TRAILER.size] + trailer + data[end:]
    return data[:start] + tail, f"{len(tail)}:{zlib.crc32(tail):08x}"


def descriptor_of(data: bytes) -> dict[str, object]:
    """What the end of the file says."""
    start, checksums, _ = _places(data)
    fields: dict[str, object] = json.loads(data[start:checksums])
    return fields


def _places(data: bytes) -> tuple[int, int, int]:
    """Where the descriptor, the checksums after it and Arrow's footer begin."""
    footer_bytes, _ = _ARROW_END.unpack(data[-_ARROW_END.size :])
    end = len(data) - _ARROW_END.size - footer_bytes - _EOS_BYTES
    descriptor_bytes, blocks, _ = _TRAILER.unpack(data[end - _TRAILER.size : end])
    checksums = end - _TRAILER.size - 4 * blocks
    return checksums - descriptor_bytes, checksums, end
