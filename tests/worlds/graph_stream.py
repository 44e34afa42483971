"""A stream of several steps, each behind the one before, whose epochs real tasks work, without Spark."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from dagster_ckpt.clock import SystemClock
from dagster_ckpt.ids import Shard
from dagster_ckpt.lsm.key_hash import key_hashes
from dagster_ckpt.operators import from_pipeline
from dagster_ckpt.operators.rows.append import AppendOnly
from dagster_ckpt.operators.shared.checks.updating_checks import changes_schema
from dagster_ckpt.protocol.ack import ShardAck
from dagster_ckpt.protocol.lease import LeaseHolder
from dagster_ckpt.protocol.manifest.manifest import Manifest, Owner, Pipeline
from dagster_ckpt.protocol.object_names import folder_of
from dagster_ckpt.protocol.transitions.edits import EpochEdit
from dagster_ckpt.runtime.task.ack_rows import Reply
from dagster_ckpt.runtime.task.shard_assignment import HASH, ShardAssignment
from dagster_ckpt.runtime.task.shard_work import ShardWork
from dagster_ckpt.state.engine import Engine
from dagster_ckpt.storage.leases.process_identity import this_process
from dagster_ckpt.storage.retention_refs.ancestors import with_ancestors
from dagster_ckpt.storage.stores.address import StoreAddress
from dagster_ckpt.storage.stores.folder import folder_store
from dagster_ckpt.storage.writer.opening import Opening, Takeover
from dagster_ckpt.storage.writer.stream_writer import StreamWriter, open_stream

SHARDS = 4


@dataclass
class GraphStream:
    """Each step of `pipeline` has one input: the first the rows of an epoch, the others the step before."""

    address: StoreAddress
    name: str
    pipeline: Pipeline
    engine: Engine
    retained: int = 20
    writer: StreamWriter = field(init=False)
    _attempts: "itertools.count[int]" = field(default_factory=itertools.count)

    def __post_init__(self) -> None:
        self.open()

    def open(self) -> None:
        """Open the stream, as a Dagster run does."""
        opening = Opening(
            stream=self.name,
            owner=Owner("tests", self.name),
            pipeline=self.pipeline,
            shards=SHARDS,
            holder=LeaseHolder("run", "tests", this_process()),
            root_run="run",
            retained=self.retained,
            take_over=Takeover.ALWAYS,
        )
        store = folder_store(self.address.open(), folder_of(self.name.split("/")))
        self.writer = open_stream(store, opening, SystemClock())
        self.writer.heartbeat.stop()

    def commit(self, rows: pa.Table) -> Manifest:
        """Work the rows as one epoch: all tasks of a step end before the next one begins."""
        acks: list[ShardAck] = []
        for number, step in enumerate(self.pipeline.steps):
            replies: list[Reply] = []
            passed = list(self._worked(number, rows, replies))
            acks += [reply for reply in replies if isinstance(reply, ShardAck)]
            assert len(acks) == (number + 1) * self.writer.manifest.shards
            if passed:
                rows = pa.concat_tables(each.select(changes_schema(step).names) for each in passed)
            else:
                rows = changes_schema(step).empty_table()
        batch_id = (self.writer.manifest.batch_id or 0) + 1
        return self.writer.commit(EpochEdit(tuple(acks), (), batch_id, epoch_ms=1))

    def _worked(self, step: int, rows: pa.Table, replies: list[Reply]) -> Iterator[pa.Table]:
        manifest, root = self.writer.manifest, self.address.open()
        assignment = ShardAssignment.keyed(manifest.shards, 2)
        operator = from_pipeline(self.pipeline.steps[step])
        assert not isinstance(operator, AppendOnly)
        hashes = key_hashes(rows.select(operator.pipeline.keys))
        rows = rows.select(operator.pipeline.inputs[0].schema.names)
        rows = rows.append_column(HASH, pa.array(hashes.view(np.int64)))
        shard_of = assignment.shards_in(hashes)
        assert assignment.tasks is not None
        for task in range(assignment.tasks):
            shards: tuple[Shard, ...] = assignment.shards_of(task)
            work = ShardWork(
                store=with_ancestors(self.writer.store, root, manifest.ancestors),
                manifest=manifest,
                epoch=self.writer.next_epoch,
                term=self.writer.term,
                attempt=next(self._attempts),
                assignment=assignment,
                event_times=(None,),
                clock=SystemClock(),
                engine=self.engine,
                step=step,
            )
            mine = rows.filter(pa.array(np.isin(shard_of, shards)))
            yield from work.transform(operator, shards, mine.to_batches(), replies)
