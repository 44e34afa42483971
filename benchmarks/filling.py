"""A stream that is filled without Spark: one task works all its shards, and the engine's compaction is that of any."""

from collections.abc import Callable, Iterable
from dataclasses import replace

import pyarrow as pa

from dagster_ckpt.clock import SystemClock
from dagster_ckpt.ids import Shard
from dagster_ckpt.lsm.table import Hashes
from dagster_ckpt.operators import AppendOnly, EpochContext, Operator
from dagster_ckpt.operators.operator import change_log_table
from dagster_ckpt.protocol.ack import ShardAck
from dagster_ckpt.protocol.lease import LeaseHolder
from dagster_ckpt.protocol.manifest.manifest import Owner
from dagster_ckpt.protocol.object_names import FileId
from dagster_ckpt.protocol.transitions.edits import EpochEdit
from dagster_ckpt.state.engine import Engine
from dagster_ckpt.state.task_state import open_state
from dagster_ckpt.storage.leases.process_identity import this_process
from dagster_ckpt.storage.stores.address import StoreAddress
from dagster_ckpt.storage.stores.folder import folder_store
from dagster_ckpt.storage.writer.opening import Opening
from dagster_ckpt.storage.writer.stream_writer import StreamWriter, open_stream


def fill_stream(
    address: StoreAddress,
    name: str,
    operator: Operator,
    shards: int,
    epochs: Iterable[Iterable[pa.Table]],
    hashes: Callable[[pa.Table], Hashes],
    retained: int = 20,
) -> None:
    """Make the stream. An epoch's rows come in tables, one at a time; `hashes` are those of a table's keys.

    `retained` is how many epochs stay readable.
    """
    store, opening = folder_store(address.open(), name), opening_of(name, operator, shards, retained)
    writer, engine = open_stream(store, opening, SystemClock()), Engine(SystemClock())
    for batch, tables in enumerate(epochs):
        acks = epoch_acks(writer, operator, engine, ((hashes(rows), rows) for rows in tables))
        writer.commit(EpochEdit(acks, sources=(), batch_id=batch, epoch_ms=0))
    writer.close("filled")


def opening_of(name: str, operator: Operator | AppendOnly, shards: int, retained: int) -> Opening:
    """What opens the stream."""
    return Opening(
        stream=name,
        owner=Owner("benchmark", name),
        pipeline=operator.pipeline,
        shards=shards,
        holder=LeaseHolder("benchmark", "benchmark", this_process()),
        root_run="benchmark",
        retained=retained,
    )


def epoch_acks(
    writer: StreamWriter, operator: Operator, engine: Engine, tables: Iterable[tuple[Hashes, pa.Table]]
) -> tuple[ShardAck, ...]:
    """Work one epoch as a single task that has all shards; what it wrote is durable when this returns."""
    manifest = writer.manifest
    shards = tuple(map(Shard, range(manifest.shards)))
    file = FileId(writer.term, writer.next_epoch, shards[0], attempt=0)
    context = EpochContext(file.epoch, shards, len(shards), None, engine.budget.soft_bytes)
    with open_state(writer.store, manifest, shards, file, engine, change_log_table(operator)) as state:
        state.compact()
        for hashes, rows in tables:
            operator.on_rows(0, hashes, rows, state, context)
            state.relieve()
        for _ in operator.finish(state, context):
            state.relieve()
        lists = state.flush()
        first, *others = (ShardAck(shard, lists[shard]) for shard in shards)
        return (
            replace(first, changes=state.log, state_rows=state.metrics.state_rows, table_rows=state.metrics.table_rows),
            *others,
        )
