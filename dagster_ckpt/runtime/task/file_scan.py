"""Files read by Arrow in Spark's tasks: their rows never become rows of Spark's.

A task gets ranges of files, as Spark splits them: of a file it reads the row groups whose middle is in its range. What
it reads goes to the tasks of the first step as tables (`PackedRows`).
"""

import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from itertools import pairwise

import pyarrow as pa
import pyarrow.parquet as pq

from dagster_ckpt.runtime.task.arrow_work import ArrowWork, LeftToSparkError
from dagster_ckpt.runtime.task.packed_rows import PackedRows, pack_refusal
from dagster_ckpt.runtime.task.parquet_columns import columns_to_read

SCAN_PROPERTY = "dagster_ckpt.scan"
"""The property of a job with the ranges that each of its tasks reads."""

_RANGE_BYTES = 1 << 25
_TASK_BYTES = 1 << 28
_BATCH_ROWS = 1 << 16
_BATCH_ROWS_OF_ANY_WIDTH = 1 << 12
"""As many as Spark reads at once: a page of a few bytes may say a long text for each of many rows."""
_TABLE_BYTES = 1 << 24
"""About how many bytes of rows are brought to the tasks at once."""
REFUSED = (LeftToSparkError, pa.ArrowException, OSError, OverflowError)
"""What is left to Spark: it reads the file nevertheless, or has an error of its own for it."""


@dataclass(frozen=True, slots=True)
class FileScan:
    """What is read of the files of one input: these columns, and what a step reads of them."""

    columns: pa.Schema
    work: ArrowWork


@dataclass(frozen=True, slots=True)
class FileRange:
    """A part of a file of so many bytes, which belongs to an input of a step, both by number."""

    step: int
    input: int
    path: str
    start: int
    length: int
    size: int


def scan_tasks(files: Sequence[FileRange], slots: int) -> int:
    """How many tasks read the files: as many as can run at once, or a few times as many where there is much to read."""
    size = sum(file.length for file in files)
    return slots * max(1, -(-size // (slots * _TASK_BYTES)))


ScanOrder = Sequence[Sequence[FileRange]]
"""The ranges of each task."""


def spread(files: Iterable[FileRange], tasks: int) -> ScanOrder:
    """The files in ranges, about as many bytes for each task."""
    ranges = [piece for file in files for piece in _pieces(file)]
    found: list[list[FileRange]] = [[] for _ in range(tasks)]
    loads = [0] * tasks
    for each in sorted(ranges, key=lambda each: -each.length):
        least = loads.index(min(loads))
        found[least].append(each)
        loads[least] += each.length
    return found


def _pieces(file: FileRange) -> Iterator[FileRange]:
    pieces = max(1, -(-file.length // _RANGE_BYTES))
    edges = [file.length * number // pieces for number in range(pieces + 1)]
    for start, end in pairwise(edges):
        yield replace(file, start=file.start + start, length=end - start)


def encode_scan(order: ScanOrder) -> str:
    """The ranges as a property of a job."""
    return json.dumps([[astuple(each) for each in ranges] for ranges in order], separators=(",", ":"))


def decode_scan(text: str, partition: int) -> list[FileRange]:
    """The ranges of one task."""
    return [FileRange(*each) for each in json.loads(text)[partition]]


def scan_task(
    step: int, inputs: Sequence[tuple[FileScan, PackedRows]]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function for `mapInArrow`: the rows of files for the tasks of a step; `inputs` are those of its inputs.

    The rows that Spark passes only make the task run.
    """

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None, "this runs in a Spark task"
        ranges = decode_scan(context.getLocalProperty(SCAN_PROPERTY) or "", context.partitionId())
        try:
            for packed, table in _file_tables(step, inputs, ranges):
                yield from packed.batches(table)
        except REFUSED as error:
            yield from pack_refusal(error)
        deque(batches, maxlen=0)

    return work


def scan(step: int, inputs: Sequence[tuple[FileScan, PackedRows]], ranges: Sequence[FileRange]) -> Iterator[pa.Table]:
    """The rows of the ranges as a task of the step takes them. Raises `REFUSED`."""
    for packed, table in _file_tables(step, inputs, ranges):
        yield packed.rows(table)


def _file_tables(
    step: int, inputs: Sequence[tuple[FileScan, PackedRows]], ranges: Sequence[FileRange]
) -> Iterator[tuple[PackedRows, pa.Table]]:
    """The rows of the ranges as they are in the files, those of an input after those of another."""
    for number, (files, packed) in enumerate(inputs):
        own = [each for each in ranges if (each.step, each.input) == (step, number)]
        for table in _tables(read_ranges(files.columns, own)):
            yield packed, table


def _tables(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """The batches, so many at once that few tables are packed."""
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        held.append(batch)
        size += batch.nbytes
        if size >= _TABLE_BYTES:
            yield pa.Table.from_batches(held)
            held, size = [], 0
    if held:
        yield pa.Table.from_batches(held)


def read_ranges(columns: pa.Schema, ranges: Sequence[FileRange]) -> Iterator[pa.RecordBatch]:
    """These columns of the rows in the ranges, null where a file lacks one. Raises `REFUSED`."""
    rows = _BATCH_ROWS if all(map(_has_width, columns.types)) else _BATCH_ROWS_OF_ANY_WIDTH
    for each in ranges:
        with pq.ParquetFile(each.path, coerce_int96_timestamp_unit="us") as file:
            there = columns_to_read(file, columns)
            groups = _groups_in(file.metadata, each)
            for batch in file.iter_batches(rows, groups, there, use_threads=False) if groups else ():
                yield _with_all(batch, columns)


def check_file(path: str, columns: pa.Schema) -> None:
    """Raise `LeftToSparkError` for a file whose columns may mean something else to Spark, or that Arrow cannot read."""
    try:
        with pq.ParquetFile(path) as file:
            columns_to_read(file, columns)
    except REFUSED as error:
        raise LeftToSparkError(f"{error}, file={path}") from error


def check_files(inputs: Mapping[int, Sequence[tuple[FileScan, PackedRows]]], files: Iterable[FileRange]) -> None:
    """Check each of the files, by the columns of its input; `inputs` are those of each step that reads files."""
    for file in files:
        check_file(file.path, inputs[file.step][file.input][0].columns)


def _groups_in(footer: pq.FileMetaData, within: FileRange) -> list[int]:
    """The row groups whose middle is in the range."""
    found = []
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        starts = [_start(group.column(place)) for place in range(group.num_columns)]
        size = sum(group.column(place).total_compressed_size for place in range(group.num_columns))
        # Offsets in a footer may be wrong: clamped, the group is still in exactly one range.
        middle = min(max(0, min(starts, default=0) + size // 2), within.size - 1)
        if within.start <= middle < within.start + within.length:
            found.append(number)
    return found


def _start(column: pq.ColumnChunkMetaData) -> int:
    """Where the pages of a column begin."""
    return min(filter(None, (column.dictionary_page_offset, column.data_page_offset)), default=0)


def _has_width(type_: pa.DataType) -> bool:
    """Whether each value takes as many bytes."""
    return not (pa.types.is_string(type_) or pa.types.is_binary(type_))


def _with_all(batch: pa.RecordBatch, columns: pa.Schema) -> pa.RecordBatch:
    """The batch with all columns, those that its file lacks being null."""
    if not len(columns):
        return batch  # of rows that have no column there is still the number
    there = set(batch.schema.names)
    arrays = [
        batch.column(field.name).cast(field.type) if field.name in there else pa.nulls(batch.num_rows, field.type)
        for field in columns
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=columns)
