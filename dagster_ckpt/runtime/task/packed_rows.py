"""The changes of a step on their way to the next one as a few Arrow tables, one for each task, not as rows of Spark's.

A table is one value in one row of the shuffle, with the number of the task it goes to.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dagster_ckpt.lsm.columns import flat, flatten
from dagster_ckpt.lsm.key_hash import SEED, key_hashes
from dagster_ckpt.lsm.table import Hashes
from dagster_ckpt.operators.local_aggregate import LocalAggregate
from dagster_ckpt.operators.shared.net_changes import CHANGE_FIELD
from dagster_ckpt.protocol.change_columns import CHANGE_TYPE
from dagster_ckpt.runtime.task.arrow_work import ArrowWork, LeftToSparkError
from dagster_ckpt.runtime.task.shard_assignment import HASH, INPUT, ShardAssignment, columns_of_input

TASK = pa.field("_task", pa.int32())
"""The column with the number of a task."""
PACKED = pa.schema([TASK, pa.field("_packed", pa.binary())])

_REFUSED = b"left_to_spark"
_BYTES_MAX = 1 << 22
"""The most bytes of one table."""
_BATCH_BYTES = 1 << 25
_BATCH_ROWS = 1 << 14
"""Spark cuts Arrow batches by rows, at most so many (`wide_rows`), and only where it must by bytes."""


@dataclass(frozen=True, slots=True)
class PackedRows:
    """One input of the next step: its columns, how they follow from the changes, and its tasks.

    `number` is the input's among those with these `schemas`. `local`: the rows are grouped before they go on.
    """

    work: ArrowWork
    schemas: tuple[pa.Schema, ...]
    number: int
    keys: tuple[str, ...]
    assignment: ShardAssignment
    local: LocalAggregate | None = None

    def batches(self, changes: pa.Table) -> Iterator[pa.RecordBatch]:
        """The changes as rows for Spark."""
        table = self.rows(changes)
        if table.num_rows == 0:
            return
        tasks = self.assignment.tasks_in(flat(table.column(HASH)).to_numpy().view(np.uint64))
        order = np.argsort(tasks, kind="stable")
        numbers, starts = np.unique(tasks[order], return_index=True)
        packed = table.take(pa.array(order))
        edges = [*starts.tolist(), len(order)]
        for task, start, end in zip(numbers.tolist(), edges, edges[1:], strict=False):
            yield from _pack(packed.slice(start, end - start), task)

    def rows(self, changes: pa.Table) -> pa.Table:
        """The changes as `rows_by_input` takes them; without a hash where the step has no key."""
        schema = self.schemas[self.number]
        if len(self.schemas) == 1 and (at := schema.get_field_index(CHANGE_TYPE)) >= 0:
            schema = schema.set(at, CHANGE_FIELD)  # a byte each, on the way
        columns, count = self.work.columns(changes)
        rows = pa.Table.from_arrays(columns, names=schema.names).cast(schema)
        if self.assignment.tasks is None:
            return rows
        hashes = self._hashes(rows, count)
        if self.local is not None and count:
            hashes, rows = self.local.of_rows(hashes, flatten(rows))
        return self._table(rows, hashes)

    def rows_of_task(self, changes: pa.Table, task: int) -> pa.Table:
        """The same, where this task reads what it works. Raises `LeftToSparkError` for a row of another task's key."""
        rows = self.rows(changes)
        if self.assignment.tasks in {None, 1}:
            return rows
        hashes = flat(rows.column(HASH)).to_numpy().view(np.uint64)
        if (self.assignment.tasks_in(hashes) != task).any():
            raise LeftToSparkError("an upstream's rows are not where their keys say")
        return rows

    def _hashes(self, rows: pa.Table, count: int) -> Hashes:
        return key_hashes(rows.select(list(self.keys))) if self.keys else np.full(count, SEED, dtype=np.uint64)

    def _table(self, rows: pa.Table, hashes: Hashes) -> pa.Table:
        hashed = pa.array(hashes.view(np.int64))
        if len(self.schemas) == 1:
            return pa.table([*rows.columns, hashed], names=[*rows.column_names, HASH])
        columns: dict[str, pa.Array | pa.ChunkedArray] = {
            INPUT: pa.array(np.full(len(hashes), self.number, dtype=np.int32)),
            HASH: hashed,
        }
        for number, schema in enumerate(self.schemas):
            own = rows.to_struct_array() if number == self.number else pa.nulls(len(hashes), pa.struct(list(schema)))
            columns[columns_of_input(number)] = own
        return pa.table(columns)


def unpack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows in such batches. Raises `LeftToSparkError` where there is none to read them (`pack_refusal`)."""
    for batch in batches:
        for value in batch.column(1).drop_null():
            with pa.ipc.open_stream(value.as_buffer()) as tables:
                if (reason := (tables.schema.metadata or {}).get(_REFUSED)) is not None:
                    raise LeftToSparkError(reason.decode())
                yield from tables


def pack_refusal(reason: object) -> Iterator[pa.RecordBatch]:
    """A table for the first task in place of rows that only Spark reads.

    A reply may be lost, and Spark's job goes on: what the rows would be part of must not be made without them.
    """
    nothing = pa.schema([], metadata={_REFUSED: str(reason).encode()}).empty_table()
    yield _pack_table(nothing, 0)


def _pack(table: pa.Table, task: int) -> Iterator[pa.RecordBatch]:
    """The table in pieces of a few MB, each a row.

    So many empty rows follow a piece that Spark, which counts rows, puts no more than `_BATCH_BYTES` and one piece
    into a batch.
    """
    pieces = -(-table.nbytes // _BYTES_MAX)
    rows = -(-table.num_rows // max(1, pieces))
    for start in range(0, table.num_rows, rows):
        yield _pack_table(table.slice(start, rows).combine_chunks(), task)


def _pack_table(table: pa.Table, task: int) -> pa.RecordBatch:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    buffer = sink.getvalue()
    empty = _BATCH_ROWS * buffer.size // _BATCH_BYTES
    values = pa.concat_arrays([_one(buffer), pa.nulls(empty, pa.binary())])
    return pa.record_batch([pa.array(np.full(len(values), task, dtype=np.int32)), values], schema=PACKED)


def _one(value: pa.Buffer) -> pa.Array:
    """An array of one value, not copied."""
    ends = pa.py_buffer(np.array([0, value.size], dtype=np.int32))
    return pa.Array.from_buffers(pa.binary(), 1, [None, ends, value])
