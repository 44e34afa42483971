"""The bytes of a run's file, made and read here and nowhere else.

    Arrow IPC file: schema, then ONE record batch: `_hash` uint64, `_tombstone` bool, the state table's columns
    directory            int32 each, little endian; begins at a multiple of 64 bytes
    descriptor           JSON, see `_Descriptor`
    block checksums      CRC-32 as uint32 each, little endian, of all the bytes before the descriptor in blocks
    trailer              bytes of the descriptor and number of checksums (uint32 each, little endian), then `CKPTRUN1`
    Arrow's footer       as in any Arrow IPC file, after Arrow's end-of-stream mark of 8 bytes

So any Arrow reader reads it. All from the descriptor to the end is the tail; `checksum` names its length and CRC-32.
Since the tail holds the checksums of everything before it, no bit of the file goes unguarded.
"""

import json
import struct
import zlib
from dataclasses import asdict, dataclass

import numpy as np
import pyarrow as pa

from dagster_ckpt.errors import CorruptStateError, IncompatibleStateError
from dagster_ckpt.lsm.blocks import BLOCK_BYTES, CheckedBytes, Far, checksums_of
from dagster_ckpt.lsm.columns import flatten
from dagster_ckpt.lsm.directory import Directory
from dagster_ckpt.lsm.run import Run
from dagster_ckpt.protocol.manifest import SortKind

HASH, TOMBSTONE = "_hash", "_tombstone"
FORMAT = 1
_MAGIC = b"CKPTRUN1"
_TRAILER = struct.Struct("<II8s")
_ARROW_END = struct.Struct("<i6s")
_ARROW_START_BYTES = 8
_ARROW_EOS_BYTES = 8
_MESSAGE = struct.Struct("<Ii")
_ALIGNMENT = 64


@dataclass(frozen=True)
class _Descriptor:
    """What a reader must know before it reads. Hashes are 16 hexadecimal digits: not every JSON reader has 64 bits."""

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
    bloom: str | None = None


@dataclass(frozen=True)
class Encoded:
    """A run's file: its bytes and the checksum that the manifest keeps."""

    data: pa.Buffer
    checksum: str


def encode(run: Run) -> Encoded:
    """The file of a run of at least one row."""
    batch = _batch(run)
    directory = run.directory
    room = pa.MockOutputStream()
    with pa.ipc.new_file(room, batch.schema) as writer:
        writer.write_batch(batch)
    # Nothing but the tail's checksums depends on the file's own bytes: its size is known before it is written.
    size_max = room.size() + directory.first.nbytes + 4096
    size_max += size_max // BLOCK_BYTES * 4
    data = pa.allocate_buffer(size_max)
    sink = pa.FixedSizeBufferWriter(data)
    writer = pa.ipc.new_file(sink, batch.schema)
    writer.write_batch(batch)
    sink.write(bytes(-sink.tell() % _ALIGNMENT))
    directory_offset = sink.tell()
    sink.write(directory.first.astype("<i4", copy=False))
    tail_start = sink.tell()
    descriptor = _descriptor(run, directory, _body_offset(memoryview(data)), directory_offset)
    checksums = checksums_of(memoryview(data)[:tail_start], BLOCK_BYTES)
    sink.write(descriptor)
    sink.write(checksums.astype("<u4", copy=False))
    sink.write(_TRAILER.pack(len(descriptor), len(checksums), _MAGIC))
    writer.close()
    end = sink.tell()
    sink.close()
    tail = memoryview(data)[tail_start:end]
    return Encoded(data.slice(0, end), f"{len(tail)}:{zlib.crc32(tail):08x}")


def decode(name: str, data: pa.Buffer, checksum: str, schema: pa.Schema, far: Far | None = None) -> Run:
    """The run in these bytes, mapped or not: columns are checked when they are first used, everything else at once.

    With `far`, `data` is where that brings them: the tail now, the rest when it is needed. Raises `CorruptStateError`
    for bytes that are not those of the checksum, `IncompatibleStateError` for those of a later release.
    """
    tail_start = data.size - _checked_tail(name, data, checksum, far)
    descriptor, checksums = _tail(name, data)
    blocks = CheckedBytes(name, data, tail_start, descriptor.block_bytes, checksums, far)
    blocks.check(0, descriptor.body_offset)  # so that Arrow reads no header that was not checked
    batch = pa.ipc.open_file(data).get_batch(0)
    if not batch.schema.equals(_file_schema(schema)):
        raise CorruptStateError(
            f"a state file has other columns than its table. file={name}, columns={batch.schema.names}"
        )
    cells = slice(descriptor.directory_offset, descriptor.directory_offset + 4 * descriptor.directory_cells)
    blocks.check(cells.start, cells.stop)
    first = np.frombuffer(memoryview(data)[cells], dtype="<i4")
    directory = Directory(int(descriptor.least, 16), descriptor.directory_shift, first)
    # Unlike from_arrays, this looks at no values: they are not checked yet.
    table = pa.Table.from_batches([batch.select(list(range(2, batch.num_columns)))])
    tombstones = batch.column(1) if descriptor.tombstones else None
    return Run(table, batch.column(0), tombstones, directory, blocks.check_array)


def _file_schema(schema: pa.Schema) -> pa.Schema:
    system = [pa.field(HASH, pa.uint64(), nullable=False), pa.field(TOMBSTONE, pa.bool_(), nullable=False)]
    return pa.schema([*system, *schema.remove_metadata()])


def _batch(run: Run) -> pa.RecordBatch:
    rows = flatten(run.columns())
    tombstones = np.zeros(len(run), dtype=np.bool_) if run.tombstones is None else run.tombstones
    columns = [run.hash_column, pa.array(tombstones), *(column.chunk(0) for column in rows.columns)]
    return pa.RecordBatch.from_arrays(columns, schema=_file_schema(rows.schema))


def _descriptor(run: Run, directory: Directory, body_offset: int, directory_offset: int) -> bytes:
    descriptor = _Descriptor(
        format=FORMAT,
        sort=SortKind.HASH,
        rows=len(run),
        tombstones=0 if run.tombstones is None else int(run.tombstones.sum()),
        least=f"{int(run.hashes[0]):016x}",
        greatest=f"{int(run.hashes[-1]):016x}",
        body_offset=body_offset,
        directory_offset=directory_offset,
        directory_cells=len(directory.first),
        directory_shift=directory.shift,
        block_bytes=BLOCK_BYTES,
    )
    return json.dumps(asdict(descriptor), separators=(",", ":")).encode()


def _checked_tail(name: str, data: pa.Buffer, checksum: str, far: Far | None) -> int:
    """The tail's length, once its bytes are known to be those that were written."""
    length, _, crc = checksum.partition(":")
    tail = data.size - int(length), data.size

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
    return int(length)


def _tail(name: str, data: pa.Buffer) -> tuple[_Descriptor, np.typing.NDArray[np.uint32]]:
    view = memoryview(data)
    footer_bytes, _ = _ARROW_END.unpack(view[-_ARROW_END.size :])
    end = data.size - _ARROW_END.size - footer_bytes - _ARROW_EOS_BYTES
    descriptor_bytes, blocks, magic = _TRAILER.unpack(view[end - _TRAILER.size : end])
    checksums_start = end - _TRAILER.size - 4 * blocks
    plain = json.loads(bytes(view[checksums_start - descriptor_bytes : checksums_start]))
    if magic != _MAGIC or plain["format"] != FORMAT or plain["compression"] != "none":
        raise IncompatibleStateError(
            f"a state file was written by a later release: install that one. file={name}, format={plain['format']}, "
            f"compression={plain['compression']}"
        )
    checksums = np.frombuffer(view[checksums_start : end - _TRAILER.size], dtype="<u4")
    return _Descriptor(**plain), checksums


def _body_offset(view: memoryview) -> int:
    """Where the record batch's values begin: behind its header, which follows that of the schema."""
    end = _ARROW_START_BYTES
    for _ in ("schema", "record batch"):
        _, header_bytes = _MESSAGE.unpack_from(view, end)
        end += _MESSAGE.size + header_bytes
    return end
