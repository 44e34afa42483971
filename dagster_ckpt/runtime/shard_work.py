"""One task's part of an epoch: its rows go through the operator, and what comes of them is made durable."""

import socket
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dagster_ckpt.clock import Clock
from dagster_ckpt.ids import Epoch, Shard, Term
from dagster_ckpt.lsm.columns import flat, flatten, take
from dagster_ckpt.lsm.table import Hashes
from dagster_ckpt.operators.append import AppendOnly
from dagster_ckpt.operators.operator import EpochContext, Operator
from dagster_ckpt.protocol.ack import ShardAck
from dagster_ckpt.protocol.manifest import Manifest
from dagster_ckpt.protocol.names import FileId
from dagster_ckpt.runtime.layout import HASH, Layout
from dagster_ckpt.state import change_log
from dagster_ckpt.state.open_runs import OpenRuns
from dagster_ckpt.state.shard_state import ShardState, open_shard
from dagster_ckpt.storage.object_store import ObjectStore


@dataclass(frozen=True)
class ShardWork:
    """What a task works with. `store` is the stream's folder, `manifest` what the epoch builds on.

    `attempt` is a number that no other attempt at any task of this term has: every file written here is named by it.
    """

    store: ObjectStore
    manifest: Manifest
    epoch: Epoch
    term: Term
    attempt: int
    layout: Layout
    event_time: str | None
    clock: Clock
    open_runs: OpenRuns

    def append(self, operator: AppendOnly, shard: Shard, chunks: Iterable[pa.Table]) -> ShardAck:
        """Add the rows to the stream's table, a file for each chunk."""
        began_ms = self.clock.monotonic_ms()
        rows_in, event_time_us, changes = 0, None, []
        for number, chunk in enumerate(chunks):
            rows = chunk.select(operator.pipeline.output.names).cast(operator.pipeline.output)
            rows_in += rows.num_rows
            event_time_us = _later(event_time_us, self._newest_us(rows))
            changes.append(change_log.write(self.store, self._file(shard, number), operator.changes(rows).rows))
        return ShardAck(
            shard,
            changes=tuple(change for change in changes if change is not None),
            rows_in=rows_in,
            rows_out=rows_in,
            event_times_us=(event_time_us,),
            milliseconds=self.clock.monotonic_ms() - began_ms,
            host=socket.gethostname(),
        )

    def transform(self, operator: Operator, shards: Sequence[Shard], chunks: Iterable[pa.Table]) -> Iterator[ShardAck]:
        """Take the rows through a stateful operator, each to its shard. Every shard ACKs, also one without a row."""
        epochs = {shard: self._shard_epoch(operator, shard) for shard in shards}
        schema = operator.pipeline.inputs[0].schema
        for chunk in chunks:
            hashes = flat(chunk.column(HASH)).to_numpy().view(np.uint64)
            rows = flatten(chunk.select(schema.names).cast(schema))
            for shard, its_hashes, its_rows in split(self.layout, hashes, rows):
                epochs[shard].take_in(its_hashes, its_rows, self._newest_us(its_rows))
        for epoch in epochs.values():
            yield epoch.ack()

    def _shard_epoch(self, operator: Operator, shard: Shard) -> "_ShardEpoch":
        file = self._file(shard, 0)
        state = open_shard(self.store, self.manifest, shard, file, self.open_runs)
        context = EpochContext(self.epoch, shard, self.manifest.shards, self.manifest.watermark_us)
        return _ShardEpoch(self.store, operator, state, context, file, self.clock)

    def _file(self, shard: Shard, number: int) -> FileId:
        return FileId(self.term, self.epoch, shard, self.attempt, number)

    def _newest_us(self, rows: pa.Table) -> int | None:
        if self.event_time is None:
            return None
        newest = pc.max(rows.column(self.event_time))
        return int(newest.cast(pa.int64()).as_py()) if newest.is_valid else None


class _ShardEpoch:
    """One shard's part of the epoch as it grows."""

    def __init__(
        self,
        store: ObjectStore,
        operator: Operator,
        state: ShardState,
        context: EpochContext,
        file: FileId,
        clock: Clock,
    ) -> None:
        self._store = store
        self._operator = operator
        self._state = state
        self._context = context
        self._file = file
        self._clock = clock
        self._rows_in = 0
        self._late_rows = 0
        self._event_time_us: int | None = None
        self._busy_ms = 0

    def take_in(self, hashes: Hashes, rows: pa.Table, event_time_us: int | None) -> None:
        began_ms = self._clock.monotonic_ms()
        self._late_rows += self._operator.on_rows(hashes, rows, self._state, self._context)
        self._rows_in += rows.num_rows
        self._event_time_us = _later(self._event_time_us, event_time_us)
        self._busy_ms += self._clock.monotonic_ms() - began_ms

    def ack(self) -> ShardAck:
        """Make it all durable."""
        began_ms = self._clock.monotonic_ms()
        changes = self._operator.finish(self._state, self._context).rows
        change = change_log.write(self._store, self._file, changes)
        tables = self._state.flush()
        return ShardAck(
            self._context.shard,
            tables=tables,
            changes=() if change is None else (change,),
            rows_in=self._rows_in,
            rows_out=changes.num_rows,
            late_rows=self._late_rows,
            state_rows=self._state.state_rows_delta,
            event_times_us=(self._event_time_us,),
            milliseconds=self._busy_ms + self._clock.monotonic_ms() - began_ms,
            host=socket.gethostname(),
        )


def split(layout: Layout, hashes: Hashes, rows: pa.Table) -> Iterator[tuple[Shard, Hashes, pa.Table]]:
    """The rows of each shard, in the order in which they came; shards without a row are left out."""
    shards = layout.shards_in(hashes)
    if len(shards) == 0:
        return
    if shards.min() == shards.max():
        yield Shard(int(shards[0])), hashes, rows
        return
    order = np.argsort(shards, kind="stable")
    hashes, rows, shards = hashes[order], take(rows, order), shards[order]
    starts = np.flatnonzero(np.diff(shards, prepend=-1))
    for start, end in zip(starts, [*starts[1:], len(shards)], strict=True):
        yield Shard(int(shards[start])), hashes[start:end], rows.slice(start, end - start)


def chunks_of(batches: Iterable[pa.RecordBatch], bytes_max: int) -> Iterator[pa.Table]:
    """The batches put together into tables of about `bytes_max`; none is empty."""
    held: list[pa.RecordBatch] = []
    held_bytes = 0
    for batch in batches:
        if batch.num_rows == 0:
            continue
        held.append(batch)
        held_bytes += batch.nbytes
        if held_bytes >= bytes_max:
            yield pa.Table.from_batches(held)
            held, held_bytes = [], 0
    if held:
        yield pa.Table.from_batches(held)


def _later(one_us: int | None, other_us: int | None) -> int | None:
    return max((time for time in (one_us, other_us) if time is not None), default=None)
