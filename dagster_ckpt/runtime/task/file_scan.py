"""Files read by Arrow, in ranges as Spark splits them: a row group is read with the range that has its middle."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import pyarrow as pa
import pyarrow.parquet as pq

from dagster_ckpt.runtime.task.arrow_work import ArrowWork, LeftToSparkError
from dagster_ckpt.runtime.task.packed_rows import PackedRows
from dagster_ckpt.runtime.task.parquet_columns import columns_to_read
from dagster_ckpt.runtime.task.scan import REFUSED

_RANGE_BYTES = 1 << 25
_BATCH_ROWS = 1 << 16
_BATCH_ROWS_OF_ANY_WIDTH = 1 << 12
"""As many as Spark reads at once: a page of a few bytes may say a long text for each of many rows."""


@dataclass(frozen=True, slots=True)
class FileRange:
    """A part of a file of so many bytes, which belongs to an input of a step, both by number."""

    step: int
    input: int
    path: str
    start: int
    length: int
    size: int

    def split(self, tasks: int) -> Iterator["FileRange"]:
        """The range in smaller ones, as Spark splits files."""
        pieces = max(1, -(-self.length // _RANGE_BYTES))
        edges = [self.length * number // pieces for number in range(pieces + 1)]
        for start, end in pairwise(edges):
            yield replace(self, start=self.start + start, length=end - start)


@dataclass(frozen=True, slots=True)
class FileScan:
    """What is read of the files of one input: these columns, and what a step reads of them."""

    columns: pa.Schema
    work: ArrowWork

    def read(self, pieces: Sequence[FileRange]) -> Iterator[pa.RecordBatch]:
        """The columns of the rows in the ranges, null where a file lacks one. Raises `REFUSED`."""
        columns = self.columns
        rows = _BATCH_ROWS if all(map(_has_width, columns.types)) else _BATCH_ROWS_OF_ANY_WIDTH
        for each in pieces:
            with pq.ParquetFile(each.path, coerce_int96_timestamp_unit="us") as file:
                there = columns_to_read(file, columns)
                groups = _groups_in(file.metadata, each)
                for batch in file.iter_batches(rows, groups, there, use_threads=False) if groups else ():
                    yield _with_all(batch, columns)

    def check(self, piece: FileRange) -> None:
        """Raise `LeftToSparkError` for a file that may mean something else to Spark, or that Arrow cannot read."""
        try:
            with pq.ParquetFile(piece.path) as file:
                columns_to_read(file, self.columns)
        except REFUSED as error:
            raise LeftToSparkError(f"{error}, file={piece.path}") from error

    def nests(self, piece: FileRange, packed: PackedRows) -> bool:
        """Files have rows of any keys."""
        return False


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
