"""Files of an append-only stream's table, made fewer: several are read, one is written, with the same rows.

`append_merges` chooses them. Held in memory at a time: the bytes of the files where they come from a
remote store, those of the new one, and one chunk of rows.
"""

import logging
from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from dagster_ckpt.nullability import all_nullable_within
from dagster_ckpt.protocol.ack import FilesMerged
from dagster_ckpt.protocol.change_columns import CHANGE_TYPE, EPOCH
from dagster_ckpt.protocol.manifest.manifest import ChangeRef
from dagster_ckpt.protocol.object_names import FileId, merged_name
from dagster_ckpt.protocol.transitions.append_merges import FileMerge
from dagster_ckpt.state.committed import change_log
from dagster_ckpt.storage.stores.object_store import ObjectStore

_LOG = logging.getLogger(__name__)
_READ_AT_ONCE = 16


class _NoTimeError(Exception):
    """It has taken too long."""


def merge(
    store: ObjectStore, file: FileId, choice: FileMerge, chunk_bytes: int, has_time: Callable[[], bool]
) -> FilesMerged | None:
    """Make these files one, durable when this returns. Each row group of it has about `chunk_bytes`, unpacked.

    None, and no file, where there is no time any more: an epoch must never fail for what may as well be done later.

    It has every column that any of them has. Files in which a column has different types (it was dropped, and came
    again as another one) cannot be one: then only the most neighbours that agree; None where no two do.

    Raises `CorruptStateError` for a file that is damaged or missing. A crash leaves a file that no manifest names.
    """
    try:
        sources = _open_files(store, choice.files, has_time)
        first, last, schema = _agreeing([all_nullable_within(source.schema_arrow) for source in sources])
        if last - first < 2:
            return None
        data, rows = _encode(sources[first:last], schema, chunk_bytes, has_time)
    except _NoTimeError:
        _LOG.warning(
            "files of the table are not merged now, since that takes too long: look at how fast the store is, or give "
            "epochs a longer timeout. first=%s, files=%s, bytes=%s",
            choice.files[0].name,
            len(choice.files),
            sum(each.bytes for each in choice.files),
        )
        return None
    files = choice.files[first:last]
    path, newest = merged_name(choice.merges, file), max(each.epoch for each in files)
    merged = change_log.create_file(store, path, memoryview(data), rows, newest, file.shard)
    return FilesMerged(tuple(each.name for each in files), merged)


def _open_files(store: ObjectStore, files: Sequence[ChangeRef], has_time: Callable[[], bool]) -> list[pq.ParquetFile]:
    opened: list[pq.ParquetFile] = []
    for at in range(0, len(files), _READ_AT_ONCE):
        if not has_time():
            raise _NoTimeError
        read = change_log.read_files(store, files[at : at + _READ_AT_ONCE])
        opened += [pq.ParquetFile(pa.BufferReader(data)) for data in read]
    return opened


def _encode(
    sources: Sequence[pq.ParquetFile], schema: pa.Schema, chunk_bytes: int, has_time: Callable[[], bool]
) -> tuple[pa.Buffer, int]:
    """The bytes of one file with all rows, and how many these are."""
    sink, rows = pa.BufferOutputStream(), 0
    with change_log.parquet_writer(sink, schema) as writer:
        for chunk in _chunks(sources, schema, chunk_bytes):
            if not has_time():
                raise _NoTimeError
            writer.write_table(chunk, row_group_size=chunk.num_rows)
            rows += chunk.num_rows
    return sink.getvalue(), rows


def _agreeing(schemas: Sequence[pa.Schema]) -> tuple[int, int, pa.Schema]:
    """The most neighbours in which each column has one type: those `[first, last)`, and all their columns."""
    groups, first, columns = [], 0, schemas[0].remove_metadata()
    for at, schema in enumerate(schemas):
        try:
            columns = pa.unify_schemas([columns, schema.remove_metadata()])
        except pa.ArrowTypeError:
            groups.append((first, at, columns))
            first, columns = at, schema.remove_metadata()
    groups.append((first, len(schemas), columns))
    first, last, columns = max(groups, key=lambda group: group[1] - group[0])
    marks = [columns.field(name) for name in (EPOCH, CHANGE_TYPE)]
    # A column that some of the files do not have is null there, whatever the others promise.
    of_table = [field.with_nullable(True) for field in columns if field not in marks]
    return first, last, pa.schema([*of_table, *marks])


def _chunks(sources: Sequence[pq.ParquetFile], schema: pa.Schema, chunk_bytes: int) -> Iterator[pa.Table]:
    """All rows, in chunks of about as many bytes; none is empty."""
    held: list[pa.Table] = []
    held_bytes = 0
    for source in sources:
        for batch in source.iter_batches(batch_size=_rows_at_once(source.metadata, chunk_bytes)):
            rows = change_log.in_schema(pa.Table.from_batches([batch]), schema)
            if held and held_bytes + rows.nbytes > chunk_bytes:
                yield pa.concat_tables(held)
                held, held_bytes = [], 0
            held.append(rows)
            held_bytes += rows.nbytes
    yield pa.concat_tables(held)


def _rows_at_once(metadata: pq.FileMetaData, chunk_bytes: int) -> int:
    """How many rows of the file are a chunk, unpacked; at least one."""
    bytes_: int = sum(metadata.row_group(number).total_byte_size for number in range(metadata.num_row_groups))
    rows: int = metadata.num_rows
    return max(1, chunk_bytes * rows // max(1, bytes_))
