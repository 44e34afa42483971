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
    footer_bytes, _ = _ARROW_END.unpack(data[-_ARROW_END.size :])
    end = len(data) - _ARROW_END.size - footer_bytes - _EOS_BYTES
    descriptor_bytes, blocks, magic = _TRAILER.unpack(data[end - _TRAILER.size : end])
    checksums = end - _TRAILER.size - 4 * blocks
    start = checksums - descriptor_bytes
    encoded = json.dumps({**json.loads(data[start:checksums]), **change}).encode()
    trailer = _TRAILER.pack(len(encoded), blocks, magic)
    tail = encoded + data[checksums : end - _TRAILER.size] + trailer + data[end:]
    return data[:start] + tail, f"{len(tail)}:{zlib.crc32(tail):08x}"
