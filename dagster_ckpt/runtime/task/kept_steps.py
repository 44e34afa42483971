"""A task's part of the epoch in which changed steps start over: the whole table of a step that keeps its state."""

import socket
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa

from dagster_ckpt.hash_range import HashRange, shard_range
from dagster_ckpt.ids import Shard
from dagster_ckpt.operators.registry import from_pipeline
from dagster_ckpt.operators.rows.append import AppendOnly
from dagster_ckpt.operators.shared.net_changes import inserts
from dagster_ckpt.protocol.ack import ShardAck
from dagster_ckpt.protocol.manifest.manifest import Pipeline
from dagster_ckpt.protocol.transitions.step_changes import StepChange, changed
from dagster_ckpt.runtime.task.ack_rows import Reply
from dagster_ckpt.runtime.task.shard_work import ShardWork
from dagster_ckpt.state.committed.table_snapshot import live_pieces
from dagster_ckpt.tables import table_rows
from dagster_ckpt.tables.share import Share


def with_steps(work: ShardWork, pipeline: Pipeline) -> tuple[ShardWork, int | None]:
    """The work of a task in the first epoch of these steps, and the old number of its step if that is kept."""
    old = StepChange.between(work.manifest.pipeline, pipeline).kept.get(work.step)
    return (work, old) if old is not None else (replace(work, manifest=changed(work.manifest, pipeline)), None)


def pass_on_table(
    work: ShardWork, old: int, shards: Sequence[Shard], code: object, replies: list[Reply], *, is_last: bool
) -> Iterator[pa.Table]:
    """Yield all rows of the step's table in these shards as inserts, a piece at a time. Its state stays as it is.

    `old` is the step's number in the manifest. The rows of the last step are only counted: its table is the stream's.
    The ACKs are added to `replies` at the end.
    """
    began_ms, manifest = work.clock.monotonic_ms(), work.manifest
    step, count = manifest.pipeline.steps[old], 0
    for rows in _appended(work, shards) if step.appends else _current(work, old, shards, code):
        count += rows.num_rows
        if not is_last and rows.num_rows:
            yield rows if step.appends else inserts(rows).rows
    busy_ms, host = work.clock.monotonic_ms() - began_ms, socket.gethostname()
    acks = [ShardAck(shard, milliseconds=busy_ms, host=host, step=work.step) for shard in shards]
    acks[0] = replace(acks[0], table_rows=count if is_last else 0)
    replies += acks


def _current(work: ShardWork, old: int, shards: Sequence[Shard], code: object) -> Iterator[pa.Table]:
    """The rows of a table that changes, from its state."""
    manifest = work.manifest
    operator = from_pipeline(manifest.pipeline.steps[old], code)
    assert not isinstance(operator, AppendOnly), "it has a state table"
    assert operator.logged is not None, "it has a table of its rows"
    within = HashRange(shard_range(shards[0], manifest.shards).lo, shard_range(shards[-1], manifest.shards).hi)
    name = manifest.pipeline.stored(old, operator.logged)
    yield from map(operator.table, live_pieces(work.store, manifest, name, within, work.engine.runs))


def _appended(work: ShardWork, shards: Sequence[Shard]) -> Iterator[pa.Table]:
    """The rows of the stream's table, which only grew: of each shard a share of its files, whosever rows these have."""
    manifest = work.manifest
    for shard in shards:
        share = Share(shard, manifest.shards)
        for batch in table_rows(work.store, work.clock, manifest, manifest.pipeline.output, share):
            yield pa.Table.from_batches([batch])
