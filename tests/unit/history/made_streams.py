"""Real streams in a real store, made as a driver and its tasks make them, without Spark."""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np
import pyarrow as pa

from dagster_ckpt.clock import SystemClock
from dagster_ckpt.ids import Epoch, Shard
from dagster_ckpt.lsm.compaction.compaction import CompactionLimits
from dagster_ckpt.lsm.key_hash import key_hashes
from dagster_ckpt.operators import AppendOnly, EpochContext, Operator, RunningAggregate, agg
from dagster_ckpt.operators.operator import change_log_table
from dagster_ckpt.operators.shared.late_rows import KEEP, keep_late, late_table
from dagster_ckpt.operators.shared.window_kinds import Tumbling
from dagster_ckpt.operators.windows.window_aggregate import WindowAggregate
from dagster_ckpt.protocol.ack import ShardAck
from dagster_ckpt.protocol.lease import LeaseHolder
from dagster_ckpt.protocol.manifest.manifest import (
    ChangeRef,
    FileSeen,
    IndexedList,
    InputSpec,
    Manifest,
    Owner,
    SourceIdentity,
    SourcePosition,
)
from dagster_ckpt.protocol.object_names import FileId, folder_of
from dagster_ckpt.protocol.transitions.edits import EpochEdit
from dagster_ckpt.state.committed import change_log
from dagster_ckpt.state.engine import Engine
from dagster_ckpt.state.task_state import open_state
from dagster_ckpt.storage.leases.process_identity import this_process
from dagster_ckpt.storage.retention_refs.ancestors import with_ancestors
from dagster_ckpt.storage.stores.address import open_store
from dagster_ckpt.storage.stores.folder import folder_store
from dagster_ckpt.storage.writer.opening import Opening, Takeover
from dagster_ckpt.storage.writer.stream_writer import StreamWriter, open_stream

DEPARTURES = pa.schema([("carrier", pa.string()), ("dep_delay", pa.float64())])
TIMED = DEPARTURES.append(pa.field("at", pa.timestamp("us", "UTC")))
SOURCE = SourceIdentity("parquet", "file:///data/departures")
SHARDS = 2
HOUR_US = 3_600_000_000


def aggregate() -> RunningAggregate:
    """Flights and mean delay by carrier."""
    aggregations = {"flights": agg.count(), "mean_delay": agg.avg("dep_delay")}
    return RunningAggregate.build(("carrier",), aggregations, InputSpec((SOURCE,), DEPARTURES))


def append() -> AppendOnly:
    """Each departure once."""
    return AppendOnly.build(InputSpec((SOURCE,), DEPARTURES))


def by_hour() -> WindowAggregate:
    """Flights by carrier and hour; late ones are kept."""
    return WindowAggregate.build(
        ("carrier",), {"flights": agg.count()}, InputSpec((SOURCE,), TIMED), "at", Tumbling(HOUR_US), late=KEEP
    )


def departures(rows: dict[str | None, list[float]]) -> pa.Table:
    """Departures of carriers: `{"UA": [1.0, 5.0]}` is two."""
    pairs = [(carrier, delay) for carrier, delays in rows.items() for delay in delays]
    return pa.table({"carrier": [c for c, _ in pairs], "dep_delay": [d for _, d in pairs]}, schema=DEPARTURES)


@dataclass
class MadeStream:
    """A stream and its one writer. `url` is the store's, `options` are its storage options.

    Each shard takes `milliseconds` on `host`, and an epoch follows the other after `interval_ms`.
    """

    url: str
    name: str
    operator: Operator | AppendOnly = field(default_factory=aggregate)
    retained: int = 20
    instance: str = "instance-1"
    limits: CompactionLimits = field(default_factory=CompactionLimits)
    options: Mapping[str, object] = field(default_factory=dict)
    host: str = ""
    milliseconds: int = 0
    interval_ms: int | None = None
    writer: StreamWriter = field(init=False)
    _batches: "itertools.count[int]" = field(default_factory=itertools.count)
    _runs: "itertools.count[int]" = field(default_factory=itertools.count)

    def __post_init__(self) -> None:
        self.open()

    def open(self, from_epoch: int | None = None) -> Manifest:
        """Open the stream, as a Dagster run does; back at `from_epoch` if given."""
        store = folder_store(open_store(self.url, self.options), folder_of(self.name.split("/")))
        self.writer = open_stream(store, self.opening(from_epoch), SystemClock())
        batch = self.writer.manifest.batch_id
        self._batches = itertools.count(0 if batch is None else batch + 1)
        return self.writer.manifest

    def opening(self, from_epoch: int | None = None) -> Opening:
        """What the next Dagster run opens the stream with."""
        return Opening(
            stream=self.name,
            owner=Owner(self.instance, self.name, "flights"),
            pipeline=self.operator.pipeline,
            shards=SHARDS,
            holder=LeaseHolder("dagster-run-1", self.instance, this_process()),
            root_run=f"dagster-run-{next(self._runs)}",
            retained=self.retained,
            take_over=Takeover.ALWAYS,
            from_epoch=None if from_epoch is None else Epoch(from_epoch),
        )

    def commit(self, rows: pa.Table | None = None, hours: int | None = None) -> int:
        """Commit an epoch with these rows, whose greatest event time is so many hours after 1970; its number."""
        rows = DEPARTURES.empty_table() if rows is None else rows
        shards = self.writer.manifest.shards
        shard_of = np.array([_hash_of(carrier) * shards >> 64 for carrier in rows["carrier"].to_pylist()], np.int64)
        acks = tuple(
            self._work(Shard(shard), rows.filter(pa.array(shard_of == shard)), hours) for shard in range(shards)
        )
        batch = next(self._batches)
        positions = self.positions(batch)
        edit = EpochEdit(acks, positions, batch, epoch_ms=12, delays_us=(HOUR_US,), interval_ms=self.interval_ms)
        return self.writer.commit(edit).epoch

    def close(self) -> None:
        """End the writer's lease."""
        self.writer.close("the test is over")

    def positions(self, batch: int) -> tuple[SourcePosition, ...]:
        """How far its sources were read when this batch was."""
        before = {position.source: position for position in self.writer.manifest.sources}.get(SOURCE)
        seen = FileSeen(f"file:///data/departures/{batch}.parquet", 1_700_000_000_000 + batch)
        files: IndexedList[FileSeen] = IndexedList() if before is None else before.files
        position = SourcePosition(
            SOURCE,
            current=f'{{"logOffset":{batch}}}',
            previous=None if before is None else before.current,
            files=IndexedList(files.index, (*files.tail, seen)),
        )
        return (position,)

    def _work(self, shard: Shard, rows: pa.Table, hours: int | None) -> ShardAck:
        file = FileId(self.writer.term, self.writer.next_epoch, shard, 0)
        if isinstance(self.operator, AppendOnly):
            ack = self._append(self.operator, file, rows)
        else:
            ack = self._transform(self.operator, file, rows)
        times_us = (None if hours is None else hours * HOUR_US,)
        worked = replace(ack, milliseconds=self.milliseconds, host=self.host)
        return replace(worked, rows_in=rows.num_rows, event_times_us=times_us)

    def _append(self, operator: AppendOnly, file: FileId, rows: pa.Table) -> ShardAck:
        changes = operator.changes(rows)
        written = change_log.write(self.writer.store, file, changes.rows)
        return ShardAck(file.shard, changes=() if written is None else (written,), rows_out=changes.count)

    def _transform(self, operator: Operator, file: FileId, rows: pa.Table) -> ShardAck:
        manifest, engine = self.writer.manifest, Engine(SystemClock(), limits=self.limits)
        store = with_ancestors(self.writer.store, open_store(self.url, self.options), manifest.ancestors)
        context = EpochContext.following(manifest, file.epoch, (file.shard,), 1 << 20)
        hashes = np.array([_hash_of(carrier) for carrier in rows["carrier"].to_pylist()], dtype=np.uint64)
        with open_state(store, manifest, (file.shard,), file, engine, change_log_table(operator)) as state:
            if self.limits != CompactionLimits():
                state.compact()
            late = operator.on_rows(0, hashes, rows, state, context)
            if len(late):
                keep_late(state.timeline(late_table(0)), hashes, rows, late, "at", context)
            rows_out, appended = 0, list[ChangeRef | None]()
            for changes in operator.finish(state, context):
                rows_out += changes.count
                if change_log_table(operator) is None:
                    appended.append(change_log.write(store, replace(file, number=len(appended)), changes.rows))
            tables = state.flush()[file.shard]
            log = (*state.log, *(each for each in appended if each is not None))
            counted = state.metrics
            return ShardAck(
                file.shard,
                tables,
                log,
                rows_out=rows_out,
                state_rows=counted.state_rows,
                table_rows=counted.table_rows,
            )


@cache
def _hash_of(carrier: str | None) -> int:
    """Spark's: readers find keys by it."""
    return int(key_hashes(pa.table({"carrier": pa.array([carrier], pa.string())}))[0])
