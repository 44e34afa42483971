"""Reading every byte of an object and comparing its checksums: piece by piece, so that no file has to fit into memory.

Each check returns what is wrong in a few words, None where nothing is. A store that does not answer raises
`StoreUnavailableError`, an object that a newer release wrote `IncompatibleStateError`.
"""

import zlib
from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa

from dagster_ckpt.errors import CorruptStateError
from dagster_ckpt.lsm.file.blocks import block_checksums
from dagster_ckpt.lsm.file.run_tail import read_tail, tail_bytes
from dagster_ckpt.protocol.manifest.manifest import ChangeKind, ChangeRef, RunRef
from dagster_ckpt.storage.stores.object_store import ObjectMissingError, ObjectStore

MISSING = "missing"

_PIECE_BYTES = 8 * 1024 * 1024

Read = Callable[[int], None]
"""Called with the number of bytes just read."""


def check_file(store: ObjectStore, ref: RunRef | ChangeRef, read: Read) -> str | None:
    """Check a run, or a file of the change log (which may be a run). `store` is the stream's folder."""
    try:
        size = store.size(ref.name)
        if size != ref.bytes:
            return f"{size:,} bytes instead of {ref.bytes:,}"
        if isinstance(ref, ChangeRef) and ref.kind is ChangeKind.FILE:
            return _check_change_log(store, ref, read)
        return _check_run(store, ref, read)
    except ObjectMissingError:
        return MISSING


def _check_change_log(store: ObjectStore, ref: ChangeRef, read: Read) -> str | None:
    crc = 0
    for data in _pieces(store, ref.name, ref.bytes, _PIECE_BYTES):
        crc = zlib.crc32(data, crc)
        read(len(data))
    return None if f"{crc:08x}" == ref.checksum else "another checksum than the manifest's"


def _check_run(store: ObjectStore, ref: RunRef | ChangeRef, read: Read) -> str | None:
    covered = ref.bytes
    try:
        covered -= tail_bytes(ref.checksum)
        if covered < 0:
            return "shorter than its end"
        tail_data = store.get_range(ref.name, covered, ref.bytes - covered)
        tail = read_tail(ref.name, pa.py_buffer(tail_data), ref.checksum, None, covered)
    except CorruptStateError:
        return f"another checksum than the manifest's, bytes {covered:,} to {ref.bytes:,}"
    read(len(tail_data))
    block_bytes = tail.descriptor.block_bytes
    at = 0
    for data in _pieces(store, ref.name, covered, max(1, _PIECE_BYTES // block_bytes) * block_bytes):
        found = block_checksums(memoryview(data), block_bytes)
        expected = tail.checksums[at : at + len(found)]
        if not np.array_equal(found, expected):
            [bad, *_] = np.flatnonzero(found != expected) if len(found) == len(expected) else [0]
            start = (at + int(bad)) * block_bytes
            return f"another checksum than its own, bytes {start:,} to {min(start + block_bytes, covered):,}"
        at += len(found)
        read(len(data))
    if isinstance(ref, RunRef) and tail.descriptor.rows != ref.rows:
        return f"{tail.descriptor.rows:,} rows instead of {ref.rows:,}"
    return None


def _pieces(store: ObjectStore, name: str, size: int, piece_bytes: int) -> Iterator[bytes]:
    for start in range(0, size, piece_bytes):
        yield store.get_range(name, start, min(piece_bytes, size - start))
