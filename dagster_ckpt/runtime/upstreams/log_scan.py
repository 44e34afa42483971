"""An upstream read by Arrow in place of Spark: its changes are Arrow's columns in the store already."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql.types import StructType

from dagster_ckpt.errors import (
    CheckpointDeclinedError,
    CorruptStateError,
    IncompatibleStateError,
    InvalidPipelineError,
)
from dagster_ckpt.ids import Epoch
from dagster_ckpt.protocol.epochs.upstream import decode
from dagster_ckpt.runtime.declared.arrow_scan import SourceWork
from dagster_ckpt.runtime.spark.arrow_schemas import to_arrow_schema
from dagster_ckpt.runtime.task.arrow_work import ArrowWork, ColumnAt
from dagster_ckpt.runtime.task.packed_rows import PackedRows
from dagster_ckpt.runtime.upstreams.downstream import BatchLimits, Planned, Read
from dagster_ckpt.runtime.upstreams.upstream_rows import UpstreamRows, UpstreamShare
from dagster_ckpt.storage.retention_refs.upstream_log import NothingFollowsError
from dagster_ckpt.storage.stores.address import StoreAddress
from dagster_ckpt.tables import Share


@dataclass(frozen=True, slots=True)
class LogPiece:
    """A share of what an epoch reads of an upstream, which belongs to an input of a step, both by number."""

    step: int
    input: int
    share: UpstreamShare

    @property
    def length(self) -> int:
        """About how many bytes it has."""
        return self.share.bytes

    def split(self, tasks: int) -> "Iterator[LogPiece]":
        """The shares of so many tasks."""
        for share in self.share.split(tasks):
            yield replace(self, share=share)


@dataclass(frozen=True)
class LogScan:
    """What is read of an upstream: these columns, and what a step reads of them."""

    columns: pa.Schema
    work: ArrowWork
    rows: UpstreamRows
    limits: BatchLimits

    def newest_epoch(self) -> Epoch:
        """The upstream's newest epoch."""
        with _as_spark_says():
            return self.rows.log.newest().epoch

    def next_offset(self, offset: str | None, until: Epoch | None = None) -> str | None:
        """Spark's offset after the next micro-batch that begins at this one; the same where nothing is new.

        A stream that has read nothing gets one in any case, as from Spark: what asks how far each upstream was read
        finds it there. Nothing comes after the epoch `until`.
        """
        with _as_spark_says():
            at = self.rows.beginning() if offset is None else decode(offset)
            found = self.rows.next_position(at, self.limits, until)
        return offset if offset is not None and found == at else found.encode()

    def pieces(self, step: int, number: int, start: str | None, end: str) -> list[LogPiece]:
        """What comes between two of Spark's offsets, for an input of a step, both by number."""
        after = None if start is None else decode(start)
        with _as_spark_says():
            return [LogPiece(step, number, share) for share in self.rows.shares(after, decode(end))]

    def read(self, pieces: Sequence[LogPiece]) -> Iterator[pa.RecordBatch]:
        """The columns of the rows in the pieces."""
        with _as_spark_says():
            for piece in pieces:
                yield from self.rows.rows(piece.share, self.columns)

    def check(self, piece: LogPiece) -> None:
        """Any piece is what it is to Spark, which would read it by the same reader."""

    def nests(self, piece: LogPiece, packed: PackedRows) -> bool:
        """Whether each share of the piece, split for the tasks of its step, has the rows of that task's keys."""
        schema = packed.schemas[packed.number]
        columns = [self.work.values[schema.get_field_index(key)] for key in packed.keys]
        read = [self.columns.field(each.place) for each in columns if isinstance(each, ColumnAt)]
        types = [schema.field(key).type for key in packed.keys]
        return (
            packed.assignment.is_even
            and piece.share.share == Share()
            and piece.share.keys == tuple(field.name for field in read)
            and types == [field.type for field in read]
        )


def log_scan(found: SourceWork, address: StoreAddress, folder: str) -> LogScan:
    """An upstream in that store, as Arrow reads it for the stream in this folder."""
    options = found.source.options
    planned = to_arrow_schema(StructType.fromJson(found.schema))
    rows = UpstreamRows(address, folder, options["path"], Read(options["read"]), Planned.parse(planned, options["key"]))
    # Of rows without a column Arrow loses the number.
    columns = [planned.field(place) for place in found.used or [0]]
    limits = BatchLimits(int(options["epochsmax"]), int(options["rowsapart"]))
    return LogScan(pa.schema(columns), found.work, rows, limits)


@contextmanager
def _as_spark_says() -> Iterator[None]:
    """Within it an upstream's faults are told as by Spark's tasks: as a text, which `Upstreams.diagnose` reads."""
    try:
        yield
    except (CorruptStateError, IncompatibleStateError, InvalidPipelineError, NothingFollowsError) as error:
        raise CheckpointDeclinedError(f"the upstream cannot be read: {type(error).__name__}: {error}") from error
