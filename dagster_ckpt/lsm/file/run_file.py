"""The bytes of a run's file, written and read only here.

    Arrow IPC file: schema, then ONE record batch: `_hash` uint64, `_tombstone` bool, the state table's columns and, in
                         logged runs, `_before`: the row of each key before the epoch. Integers are as narrow as they
                         can be, see `stored_columns`
    directory            int32 each, little endian; begins at a multiple of 64 bytes
    Bloom filter         uint64 each, little endian; begins at a multiple of 64 bytes; not in every file
    descriptor           JSON, see `run_tail.Descriptor`
    block checksums      CRC-32 as uint32 each, little endian, of all the bytes before the descriptor in blocks
    trailer              bytes of the descriptor and number of checksums (uint32 each, little endian), then `CKPTRUN1`
    Arrow's footer       as in any Arrow IPC file, after Arrow's end-of-stream mark of 8 bytes

So any Arrow reader can read it. All from the descriptor to the end is the tail; `checksum` holds its length and CRC-32.
The tail holds the checksums of everything before it, so every bit of the file is checked.
"""

import struct
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dagster_ckpt.errors import CorruptStateError
from dagster_ckpt.hash_range import HashRange
from dagster_ckpt.lsm.columns import by_itself, flatten
from dagster_ckpt.lsm.file.blocks import BLOCK_BYTES, CheckedBytes, Far, block_checksums
from dagster_ckpt.lsm.file.run_tail import FORMAT, Descriptor, encode_tail, read_tail
from dagster_ckpt.lsm.runs.hash_index import Bloom, Directory, build_bloom
from dagster_ckpt.lsm.runs.run import Run
from dagster_ckpt.lsm.stored_columns import may_be_narrow, narrow, stand_in
from dagster_ckpt.protocol.manifest.manifest import SortKind, TimeRange
from dagster_ckpt.split_totals import full_total_for

HASH, TOMBSTONE, BEFORE = "_hash", "_tombstone", "_before"
_ARROW_START_BYTES = 8
_MESSAGE = struct.Struct("<Ii")
_ALIGNMENT = 64


@dataclass(frozen=True)
class FileLayout:
    """What a run's file has besides the rows. `time` is the table's time column.

    A Bloom filter takes one or two bytes per row and 10 ns to build. It pays off where most keys of a look-up are
    absent: in upper runs, all of which every look-up searches. It does not in the bottom on a local disk: most keys are
    found there, and reading the directory and the hash is as fast. On a remote store that read fetches two blocks, so
    there a filter pays off for absent keys in the bottom too.
    """

    sort: SortKind = SortKind.HASH
    time: str | None = None
    bloom: bool = True


@dataclass(frozen=True)
class Encoded:
    """A run's file: its bytes and the checksum that the manifest keeps."""

    data: pa.Buffer
    checksum: str


def encode(run: Run, layout: FileLayout | None = None) -> Encoded:
    """The file of a run of at least one row."""
    layout = FileLayout() if layout is None else layout
    batch = _batch(run)
    directory = run.directory
    bloom = build_bloom(run.hashes) if layout.bloom else None
    room = pa.MockOutputStream()
    with pa.ipc.new_file(room, batch.schema) as writer:
        writer.write_batch(batch)
    # Only the tail's checksums depend on the file's bytes, so its size is known before it is written.
    size_max = room.size() + directory.first.nbytes + (0 if bloom is None else bloom.words.nbytes) + 4096
    size_max += size_max // BLOCK_BYTES * 4
    data = pa.allocate_buffer(size_max)
    sink = pa.FixedSizeBufferWriter(data)
    writer = pa.ipc.new_file(sink, batch.schema)
    writer.write_batch(batch)
    directory_offset = _write_aligned(sink, directory.first.astype("<i4", copy=False))
    bloom_offset = 0 if bloom is None else _write_aligned(sink, bloom.words.astype("<u8", copy=False))
    tail_start = sink.tell()
    descriptor = Descriptor(
        format=FORMAT,
        sort=layout.sort,
        rows=len(run),
        tombstones=0 if run.tombstones is None else int(run.tombstones.sum()),
        least=f"{run.range.lo:016x}",
        greatest=f"{run.range.hi:016x}",
        body_offset=_body_offset(memoryview(data)),
        directory_offset=directory_offset,
        directory_cells=len(directory.first),
        directory_shift=directory.shift,
        block_bytes=BLOCK_BYTES,
        bloom_offset=bloom_offset,
        bloom_words=0 if bloom is None else len(bloom.words),
        bloom_shift=0 if bloom is None else bloom.shift,
        times_us=None if layout.time is None else _time_bounds(run, layout.time),
    )
    sink.write(encode_tail(descriptor, block_checksums(memoryview(data)[:tail_start], BLOCK_BYTES)))
    writer.close()
    end = sink.tell()
    sink.close()
    tail = memoryview(data)[tail_start:end]
    return Encoded(data.slice(0, end), f"{len(tail)}:{zlib.crc32(tail):08x}")


def decode(name: str, data: pa.Buffer, checksum: str, schema: pa.Schema, far: Far | None = None) -> Run:
    """The run in these bytes, mapped or not: they are checked when they are first used.

    With `far`, `data` is the buffer that it fills: the tail and Arrow's headers now, the rest when it is needed. Raises
    `CorruptStateError` for bytes that do not match the checksum, `IncompatibleStateError` for those of a later release.
    """
    tail = read_tail(name, data, checksum, far)
    descriptor = tail.descriptor
    blocks = CheckedBytes(name, data, tail.start, descriptor.block_bytes, tail.checksums, far)
    blocks.check(0, descriptor.body_offset)  # so that Arrow reads no unchecked header
    batch = _stored_batch(name, data, descriptor.rows)
    if not _may_be_of(batch.schema, schema):
        raise CorruptStateError(
            f"a state file has other columns than its table. file={name}, columns={batch.schema.names}"
        )
    least, greatest = int(descriptor.least, 16), int(descriptor.greatest, 16)
    first = _numbers(data, descriptor.directory_offset, descriptor.directory_cells, "<i4")
    words = _numbers(data, descriptor.bloom_offset, descriptor.bloom_words, "<u8")
    stored = batch.schema
    # Unlike from_arrays, neither reads values: they are not checked yet.
    if stored.names[2 : 2 + len(schema)] == schema.names:
        table = pa.Table.from_batches([batch.select(list(range(2, 2 + len(schema))))])
    else:
        table = _in_order(batch, schema)
    return Run(
        table,
        batch.column(0),
        batch.column(1) if descriptor.tombstones else None,
        batch.column(len(stored) - 1) if _has_images(stored, schema) else None,
        None if schema.equals(table.schema) else schema,
        guard=blocks,
        stored_directory=Directory(least, descriptor.directory_shift, first),
        stored_bloom=Bloom(least, descriptor.bloom_shift, words) if descriptor.bloom_words else None,
        bounds=HashRange(least, greatest),
        times=None if descriptor.times_us is None else TimeRange(*descriptor.times_us),
    )


def _stored_batch(name: str, data: pa.Buffer, rows: int) -> pa.RecordBatch:
    """The one batch of the file, whose values are not checked yet. Raises `CorruptStateError` where it is another."""
    try:
        batch = pa.ipc.open_file(data).get_batch(0)
        found = f"{batch.num_rows} rows instead of {rows}"
    except (pa.ArrowException, OSError, ValueError) as error:
        batch, found = None, str(error)
    if batch is None or batch.num_rows != rows:
        raise CorruptStateError(
            "a state file does not match its own descriptor: read, or roll back to, an epoch that does not need it. "
            f"file={name}, found={found}"
        )
    return batch


def _file_schema(schema: pa.Schema, before: pa.Field | None) -> pa.Schema:
    fields = [pa.field(HASH, pa.uint64(), nullable=False), pa.field(TOMBSTONE, pa.bool_(), nullable=False)]
    return pa.schema([*fields, *schema.remove_metadata(), *([] if before is None else [before])])


def _in_order(batch: pa.RecordBatch, schema: pa.Schema) -> pa.Table:
    """The columns of the table, in its order; something stands in for one that the file does not have."""
    there = dict(reversed([*zip(batch.schema.names, batch.columns, strict=True)]))
    columns = [there[name] if name in there else stand_in(name, there, batch.num_rows) for name in schema.names]
    fields = [field.with_type(column.type) for field, column in zip(schema, columns, strict=True)]
    return pa.Table.from_batches([pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))])


def _may_be_of(file: pa.Schema, schema: pa.Schema) -> bool:
    """Whether a file with these columns may be of a table with this schema.

    The file may be older than a change of the table: it may have columns that were dropped since, lack some that were
    added and may be null or can be made of others (`split_totals`), and have narrower types. Integers are narrow in any
    file, as far as their values allow.
    """
    if file.names[:2] != [HASH, TOMBSTONE]:
        return False
    logged = _has_images(file, schema)
    images = file.field(len(file) - 1).type if logged else ()
    stored = list(file)[2 : len(file) - logged]
    return _have_fields(stored, schema, every=True) and _have_fields(images, schema, every=False)


def _has_images(file: pa.Schema, schema: pa.Schema) -> bool:
    """Whether the last column has the rows before the epoch. A column of the table may have its name too."""
    return bool(file.names[-1] == BEFORE and file.names.count(BEFORE) > schema.names.count(BEFORE))


def _have_fields(stored: Iterable[pa.Field], schema: pa.Schema, *, every: bool) -> bool:
    """Whether these fields can be read as those of the table. `every`: none that must have a value may be missing."""
    by_name = {field.name: field for field in stored}
    for wanted in schema:
        field = by_name[wanted.name] if wanted.name in by_name else full_total_for(wanted.name, by_name)
        if field is None:
            if every and not wanted.nullable:
                return False
        elif not may_be_narrow(field.type, wanted.type) or (every and field.nullable and not wanted.nullable):
            return False
    return True


def _batch(run: Run) -> pa.RecordBatch:
    rows = flatten(run.columns())
    columns = [narrow(by_itself(column.chunk(0))) for column in rows.columns]
    stored = [field.with_type(column.type) for field, column in zip(rows.schema, columns, strict=True)]
    before = None if run.before is None else _narrowed_images(run.before)
    schema = _file_schema(pa.schema(stored), None if before is None else pa.field(BEFORE, before.type))
    more = [] if before is None else [before]
    return pa.RecordBatch.from_arrays([run.hash_column, _tombstone_bits(run), *columns, *more], schema=schema)


def _narrowed_images(before: pa.StructArray) -> pa.StructArray:
    if before.type.num_fields == 0:
        return before
    columns = [narrow(by_itself(column)) for column in before.flatten()]
    fields = [field.with_type(column.type) for field, column in zip(before.type, columns, strict=True)]
    return pa.StructArray.from_arrays(columns, fields=fields, mask=before.is_null())


def _tombstone_bits(run: Run) -> pa.Array:
    if run.tombstones is not None:
        return pa.array(run.tombstones)
    return pa.Array.from_buffers(pa.bool_(), len(run), [None, pa.py_buffer(bytes(-(-len(run) // 8)))])


def _write_aligned(sink: pa.NativeFile, items: np.typing.NDArray[Any]) -> int:
    """Writes the items at the next aligned offset, and returns it."""
    sink.write(bytes(-sink.tell() % _ALIGNMENT))
    start: int = sink.tell()
    sink.write(items)
    return start


def _numbers(data: pa.Buffer, offset: int, count: int, type_: str) -> np.typing.NDArray[Any]:
    return np.frombuffer(data, type_, count, offset)


def _time_bounds(run: Run, time: str) -> tuple[int, int] | None:
    """The least and greatest time; None if no row has one."""
    bounds = pc.min_max(run.columns([time]).column(0).chunk(0).view(pa.int64()))
    return (bounds["min"].as_py(), bounds["max"].as_py()) if bounds["min"].is_valid else None


def _body_offset(view: memoryview) -> int:
    """The offset of the record batch's values: after its header, which follows that of the schema."""
    end = _ARROW_START_BYTES
    for _ in ("schema", "record batch"):
        _, header_bytes = _MESSAGE.unpack_from(view, end)
        end += _MESSAGE.size + header_bytes
    return end
