"""A stream whose epochs real tasks work, without Spark: rows as Spark brings them in, files on a disk, a commit."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.types import StructType

from dagster_ckpt.clock import SystemClock
from dagster_ckpt.history import CheckpointStore, StreamHistory
from dagster_ckpt.lsm.key_hash import key_hashes
from dagster_ckpt.nullability import nullable_within
from dagster_ckpt.operators.operator import Operator, keys_of_inputs
from dagster_ckpt.operators.rows.append import AppendOnly
from dagster_ckpt.protocol.ack import ShardAck
from dagster_ckpt.protocol.lease import LeaseHolder
from dagster_ckpt.protocol.manifest.manifest import InputSpec, Manifest, Owner
from dagster_ckpt.protocol.transitions.edits import EpochEdit
from dagster_ckpt.runtime.declared.step_operator import arrow_schema
from dagster_ckpt.runtime.spark.arrow_schemas import to_arrow_schema
from dagster_ckpt.runtime.task.epoch_task import EpochOrder, TaskSetup, replies_of
from dagster_ckpt.runtime.task.shard_assignment import HASH, INPUT, ShardAssignment, columns_of_input
from dagster_ckpt.storage.leases.process_identity import this_process
from dagster_ckpt.storage.stores.address import StoreAddress
from dagster_ckpt.storage.stores.folder import folder_store
from dagster_ckpt.storage.writer.opening import Opening
from dagster_ckpt.storage.writer.stream_writer import StreamWriter, open_stream

NAME = "s"
SHARDS = 2
Row = dict[str, Any]


def input_of(columns: StructType) -> InputSpec:
    """An input with these columns of Spark's, as a stream's pipeline has it."""
    return InputSpec((), arrow_schema(NAME, columns))


def spark_batch(rows: Sequence[Row], columns: StructType) -> pa.RecordBatch:
    """The rows as Spark brings them: what it says is never null is in the types, and null all the same within nulls."""
    schema = to_arrow_schema(columns)
    arrays = [pa.array([row[field.name] for row in rows], nullable_within(field.type)) for field in schema]
    parts = [_null_below_nulls(array, field.type) for array, field in zip(arrays, schema, strict=True)]
    return pa.RecordBatch.from_arrays(parts, schema=schema)


def _null_below_nulls(array: pa.Array, type_: pa.DataType) -> pa.Array:
    """The array with this type; where a struct is null, so are its fields, which Arrow itself would give a value."""
    if pa.types.is_struct(type_):
        parts = [_null_below_nulls(part, field.type) for part, field in zip(array.flatten(), type_, strict=True)]
        return pa.StructArray.from_arrays(parts, fields=list(type_), mask=array.is_null())
    if pa.types.is_map(type_):
        items = _null_below_nulls(array.items, type_.item_type)
        return pa.MapArray.from_arrays(array.offsets, array.keys, items, type=type_, mask=array.is_null())
    if pa.types.is_list(type_):
        values = _null_below_nulls(array.values, type_.value_type)
        return pa.ListArray.from_arrays(array.offsets, values, type=type_, mask=array.is_null())
    return array


@dataclass
class TaskStream:
    """A stream with an operator; `inputs` are the columns of each input as Spark has them."""

    root: Path
    operator: Operator | AppendOnly
    inputs: Sequence[StructType]
    event_times: tuple[str | None, ...]
    delay_us: int = 0
    code: object = None
    number: int = 0
    writer: StreamWriter = field(init=False)

    def __post_init__(self) -> None:
        self.open(self.operator)

    def open(self, operator: Operator | AppendOnly) -> None:
        """Begin a term with this operator."""
        self.operator = operator
        self.writer = open_stream(folder_store(self._setup.address.open(), NAME), self._opening(), SystemClock())
        self.writer.heartbeat.stop()

    def epoch(self, *batches: tuple[int, Sequence[Row]]) -> Manifest:
        """Work rows of inputs, by their numbers, as one epoch, and commit it."""
        self.number += 1
        manifest = self.writer.manifest
        order = EpochOrder(self.writer.next_epoch, manifest.term, manifest.version, manifest.nonce)
        coming = [self._batch(number, rows) for number, rows in batches if rows]
        replies = []
        for task in range(1 if self.operator.pipeline.shuffles else SHARDS):
            mine = coming if task == 0 else []
            replies += replies_of(self._setup, order, task, 100 * self.number + task, iter(mine))
        acks = tuple(reply for reply in replies if isinstance(reply, ShardAck))
        assert len(acks) == len(replies), replies
        delays_us = tuple(None if time is None else self.delay_us for time in self.event_times)
        return self.writer.commit(EpochEdit(acks, (), self.number, epoch_ms=1, delays_us=delays_us))

    @property
    def history(self) -> StreamHistory:
        return CheckpointStore(self.root.as_uri()).stream(NAME)

    def rows(self) -> list[Row]:
        """The stream's table."""
        rows: list[Row] = self.history.read().to_pylist()
        return rows

    @property
    def _setup(self) -> TaskSetup:
        keyed = self.operator.pipeline.shuffles
        assignment = ShardAssignment.keyed(SHARDS, 1) if keyed else ShardAssignment.unkeyed(SHARDS)
        return TaskSetup(StoreAddress(self.root.as_uri()), NAME, assignment, self.event_times, code=self.code)

    def _opening(self) -> Opening:
        return Opening(
            stream=NAME,
            owner=Owner("tests", NAME),
            pipeline=self.operator.pipeline,
            shards=SHARDS,
            holder=LeaseHolder("run", "tests", this_process()),
            root_run="run",
            lease_timeout_ms=10,
        )

    def _batch(self, number: int, rows: Sequence[Row]) -> pa.RecordBatch:
        """A batch of one input, with what Spark's shuffle adds, and, of several, beside nulls for the others."""
        pipeline = self.operator.pipeline
        batch = spark_batch(rows, self.inputs[number])
        if not pipeline.shuffles:
            return batch
        keys = pa.Table.from_batches([batch]).select(list(keys_of_inputs(pipeline)[number]))
        hashes = pa.array(key_hashes(keys).view(np.int64))
        batch = batch.select(pipeline.inputs[number].schema.names)
        if len(self.inputs) == 1:
            return batch.append_column(HASH, hashes)
        columns = {INPUT: pa.array([number] * len(rows), pa.int32()), HASH: hashes}
        for other, spec in enumerate(pipeline.inputs):
            columns_of_spark = StructType([self.inputs[other][name] for name in spec.schema.names])
            type_ = pa.struct(list(to_arrow_schema(columns_of_spark)))
            mine = pa.StructArray.from_arrays(batch.columns, fields=list(batch.schema))
            absent = pa.nulls(len(rows), type_)
            columns[columns_of_input(other)] = mine if other == number else absent
        return pa.record_batch(columns)
