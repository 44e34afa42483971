"""The bytes of manifests, pins and index objects: gzip over JSON with the format's number, so that `zcat` shows them.

A list that is too long for one index object becomes several.
"""

import gzip
import json
import zlib
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from dagster_ckpt.errors import CorruptStateError, IncompatibleStateError
from dagster_ckpt.protocol.json_codec import Codec, Json, Record, UnknownFieldError

FORMAT = 1
COMPRESSION = 3
"""Half the time of 6 for a twentieth more bytes."""
_JSON = json.JSONEncoder(separators=(",", ":"), allow_nan=False)
JSON_BYTES_MAX = 64 * 1024 * 1024
"""The most bytes of one object, unpacked. More counts as damage: a few bytes unpack to a thousand times as many."""
ENTRIES_MAX = 100_000
"""The most entries of one index object."""
_ENTRIES_BYTES_MAX = JSON_BYTES_MAX // 2
"""The most bytes of the entries of one index object, unpacked, if there are several."""

T = TypeVar("T")


def pack(fields: dict[str, Json]) -> bytes:
    """The bytes of a JSON object, compressed and with the format's number: so all objects but advice are written."""
    return _compress(_text(fields))


def _text(fields: dict[str, Json]) -> str:
    return _JSON.encode({"format": FORMAT, **fields})


def _compress(text: str) -> bytes:
    return gzip.compress(text.encode(), compresslevel=COMPRESSION, mtime=0)


def unpacked_bytes(data: bytes) -> int:
    """The number of bytes that `pack` has compressed to these."""
    return int.from_bytes(data[-4:], "little")  # gzip ends with it


def unpack(data: bytes, name: str, decode: Callable[[Json], T]) -> T:
    """Decode what `pack` wrote; `name` is the object's, for errors.

    Raises `CorruptStateError` for damaged bytes, `IncompatibleStateError` for what a newer release wrote.
    """
    try:
        fields = json.loads(_inflate(data))
        if type(fields) is not dict or type(fields.get("format")) is not int:
            raise ValueError("no format number")
        if fields.pop("format") != FORMAT:
            raise UnknownFieldError("unknown format")
        return decode(fields)
    except UnknownFieldError as error:
        raise IncompatibleStateError(
            f"a newer release of dagster-ckpt wrote this object: upgrade before you go on. object={name}, found={error}"
        ) from error
    except (ValueError, zlib.error, RecursionError) as error:
        raise CorruptStateError(
            f"an object is damaged: restore it from a backup, or go back to an epoch before it. "
            f"object={name}, reason={error}"
        ) from error


def _inflate(data: bytes) -> bytes:
    unpacking = zlib.decompressobj(wbits=31)  # gzip, which checks its checksum at the end
    text = unpacking.decompress(data, JSON_BYTES_MAX)
    if not unpacking.eof:
        raise ValueError("the bytes end too early, or there are too many")
    return text


def encode_pieces(codec: Codec[tuple[T, ...]], entries: tuple[T, ...]) -> Iterator[tuple[tuple[T, ...], bytes]]:
    """Part of a list as several index objects, each small enough to be read back: its entries and its bytes."""
    for first in range(0, len(entries), ENTRIES_MAX):
        yield from _pieces(codec, entries[first : first + ENTRIES_MAX])


def _pieces(codec: Codec[tuple[T, ...]], entries: tuple[T, ...]) -> Iterator[tuple[tuple[T, ...], bytes]]:
    text = _entries_text(codec, entries)
    half = len(entries) // 2
    if len(text) <= _ENTRIES_BYTES_MAX or not half:
        yield entries, _compress(text)
        return
    del text
    yield from _pieces(codec, entries[:half])
    yield from _pieces(codec, entries[half:])


def _entries_text(codec: Codec[tuple[T, ...]], entries: tuple[T, ...]) -> str:
    return _text({"entries": codec.encode(entries)})


def decode_entries(codec: Codec[tuple[T, ...]], data: bytes, name: str) -> tuple[T, ...]:
    """The entries of an index object. Raises as `decode_manifest` does."""
    return unpack(data, name, lambda value: _entries(codec, value))


def decode_columns(record: Record[Any], data: bytes, name: str) -> dict[str, list[Any]]:
    """The entries of an index object as a list for each field. Otherwise as `decode_entries`."""
    return unpack(data, name, lambda value: record.lists(_entries_of(value)))


def _entries(codec: Codec[tuple[T, ...]], value: Json) -> tuple[T, ...]:
    return codec.decode(_entries_of(value))


def _entries_of(value: Json) -> Json:
    if value.keys() != {"entries"}:
        raise UnknownFieldError(f"unknown fields: {', '.join(sorted(value))}")
    return value["entries"]
