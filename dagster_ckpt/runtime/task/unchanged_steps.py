"""A task's part of the epoch in which changed steps start over: the whole table of a step that keeps its state."""

import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import pyarrow as pa

from dagster_ckpt.hash_range import HashRange, shard_range
from dagster_ckpt.ids import Nonce, Shard, StreamUuid
from dagster_ckpt.lsm.columns import flatten
from dagster_ckpt.lsm.key_hash import key_hashes
from dagster_ckpt.lsm.table import State
from dagster_ckpt.operators.operator import Changes, EpochContext, Operator, keys_of_inputs
from dagster_ckpt.operators.registry import from_pipeline
from dagster_ckpt.operators.rows.append import AppendOnly
from dagster_ckpt.operators.shared.net_changes import inserts
from dagster_ckpt.operators.shared.subkeys import SHARD_BITS
from dagster_ckpt.operators.step import OperatorStep
from dagster_ckpt.protocol.ack import ShardAck
from dagster_ckpt.protocol.manifest.manifest import KEPT_TABLE, Manifest, Owner, Pipeline
from dagster_ckpt.protocol.object_names import FileId
from dagster_ckpt.protocol.transitions.edits import Beginning, Stamp, first_manifest
from dagster_ckpt.protocol.transitions.step_changes import StepChange, change_steps, has_table
from dagster_ckpt.runtime.task.ack_rows import Reply
from dagster_ckpt.runtime.task.shard_work import ShardWork
from dagster_ckpt.state.committed.table_snapshot import live_pieces
from dagster_ckpt.state.task_state import open_state
from dagster_ckpt.storage.stores.memory import MemoryObjectStore
from dagster_ckpt.tables import table_rows
from dagster_ckpt.tables.share import Share

_ROOM = 4
"""How many times as much as the files of its state a step is assumed to need in memory when it is worked again."""


def with_steps(work: ShardWork, pipeline: Pipeline) -> tuple[ShardWork, int | None]:
    """The work of a task in the first epoch of these steps, and the old number of its step if that is kept."""
    old = StepChange.between(work.manifest.pipeline, pipeline).kept.get(work.step)
    return (work, old) if old is not None else (replace(work, manifest=change_steps(work.manifest, pipeline)), None)


def pass_on_table(
    work: ShardWork, pipeline: Pipeline, old: int, shards: Sequence[Shard], code: object, replies: list[Reply]
) -> Iterator[pa.Table]:
    """Yield all rows of the step's table in these shards as inserts, a piece at a time. Its state stays as it is.

    `old` is the step's number in the manifest, `pipeline` has the new steps. The rows of the last step are only
    counted: its table is the stream's. The ACKs are added to `replies` at the end.
    """
    is_last = work.step == len(pipeline.before)
    began_ms, manifest = work.clock.monotonic_ms(), work.manifest
    step, count = manifest.pipeline.steps[old].own, 0
    if step.appends and old == len(manifest.pipeline.before):
        pieces = _appended_rows(work, shards)
    elif has_table(step) and has_table(pipeline.steps[work.step]):
        # By the new code, whose aggregates may be others.
        pieces = _current(replace(work, manifest=change_steps(manifest, pipeline)), work.step, shards, code)
    elif has_table(step):
        pieces = _current(work, old, shards, code)
    else:
        pieces = (each.rows.select(step.output.names) for each in _rerun(work, old, shards))
    named = pipeline.steps[work.step].name_of
    for rows in pieces:
        count += rows.num_rows
        if not is_last and rows.num_rows:
            read = rows.rename_columns(list(map(named, rows.column_names)))  # as the next step knows them
            yield read if step.appends else inserts(read).rows
    busy_ms, host = work.clock.monotonic_ms() - began_ms, socket.gethostname()
    acks = [ShardAck(shard, milliseconds=busy_ms, host=host, step=work.step) for shard in shards]
    acks[0] = replace(acks[0], table_rows=count if is_last else 0)
    replies += acks


def fills_table(work: ShardWork, pipeline: Pipeline, old: int) -> bool:
    """Whether the task's step is the last of these steps, and had no table of its rows as number `old`."""
    is_last = work.step == len(pipeline.before)
    return is_last and has_table(pipeline) and not has_table(work.manifest.pipeline.steps[old])


def fill_table(work: ShardWork, pipeline: Pipeline, old: int, shards: Sequence[Shard], replies: list[Reply]) -> None:
    """Write the table of the last step, which had none: its whole output is the change log of the epoch."""
    step = _stateful(replace(pipeline.own, before=()))
    assert step.materializer is not None, "a step with a table of its own kept it before"
    filled = _Filled(step.pipeline, step.operator, step.materializer, _rerun(work, old, shards))
    begun = replace(work, manifest=change_steps(work.manifest, pipeline))
    for _ in begun.transform(filled, shards, (), replies):
        raise AssertionError("no step follows the last")


def _stateful(pipeline: Pipeline, code: object = None) -> OperatorStep:
    step = from_pipeline(pipeline, code)
    assert not isinstance(step, AppendOnly), "it has a state table"
    return step


def _inner(step: Pipeline) -> Pipeline:
    """The step without the table and the names that it has as the last of a stream."""
    return replace(step.own, before=(), tables=tuple(each for each in step.tables if each.name != KEPT_TABLE))


def _current(work: ShardWork, number: int, shards: Sequence[Shard], code: object) -> Iterator[pa.Table]:
    """The rows of a table that changes, that of the manifest's step with this number, from its state."""
    manifest = work.manifest
    table = _stateful(manifest.pipeline.steps[number].own, code).table
    assert table is not None, "it has a table of its rows"
    within = _hash_range(manifest, shards)
    name = manifest.pipeline.name_in_runs(number, table.name)
    yield from map(table.rows, live_pieces(work.store, manifest, name, within, work.engine.runs))


def _appended_rows(work: ShardWork, shards: Sequence[Shard]) -> Iterator[pa.Table]:
    """The rows of the stream's table, which only grew: of each shard a share of its files, whosever rows these have."""
    manifest = work.manifest
    for shard in shards:
        share = Share(shard, manifest.shards)
        for batch in table_rows(work.store, work.clock, manifest, manifest.pipeline.output, share):
            rows = pa.Table.from_batches([batch])
            own = {name: column for column, name in manifest.pipeline.columns}
            yield rows.rename_columns([own[name] for name in rows.column_names]) if own else rows


def _rerun(work: ShardWork, old: int, shards: Sequence[Shard]) -> Iterator[Changes]:
    """The output of a step, from the rows of its inputs that its state has: worked again in a state in memory.

    A range of hashes at a time, so that it fits: a row below a key is in the range of the key (`subkeys`).
    """
    manifest = work.manifest
    operator = _stateful(_inner(manifest.pipeline.steps[old])).operator
    tables = [manifest.pipeline.name_in_runs(old, spec.name) for spec in operator.pipeline.tables]
    runs = {ref.name: ref.bytes for name in tables for shard in shards for ref in manifest.runs[name][shard]}
    parts = 1 + _ROOM * sum(runs.values()) // work.engine.budget.soft_bytes
    for within in _parts(_hash_range(manifest, shards), parts):
        yield from _outputs(work, operator, old, within)


def _outputs(work: ShardWork, operator: Operator, old: int, within: HashRange) -> Iterator[Changes]:
    def live(table: str) -> Iterator[pa.Table]:
        name = work.manifest.pipeline.name_in_runs(old, table)
        return live_pieces(work.store, work.manifest, name, within, work.engine.runs)

    pipeline, keys = operator.pipeline, keys_of_inputs(operator.pipeline)
    beginning = Beginning("kept", StreamUuid("kept"), Owner("kept", "kept"), pipeline, 1)
    empty, file = (
        first_manifest(beginning, Stamp(Nonce("kept"), 0)),
        FileId(work.term, work.epoch, Shard(0), work.attempt),
    )
    context = EpochContext(work.epoch, (Shard(0),), 1, None, work.engine.budget.soft_bytes)
    with open_state(MemoryObjectStore("kept"), empty, (Shard(0),), file, work.engine) as state:
        for number, rows in operator.rows_kept(live):
            if rows.num_rows:
                operator.on_rows(number, key_hashes(rows.select(list(keys[number]))), flatten(rows), state, context)
                state.relieve()
        for changes in operator.finish(state, context):
            if changes.count:
                yield changes
            state.relieve()


@dataclass(frozen=True)
class _Filled(OperatorStep):
    """The step with a table, which it had not, of its output so far."""

    output: Iterator[Changes] = field(default_factory=lambda: iter(()))

    def finish(self, state: State, context: EpochContext) -> Iterator[Changes]:
        return self.emit(self.output, state, context)


def _hash_range(manifest: Manifest, shards: Sequence[Shard]) -> HashRange:
    return HashRange(shard_range(shards[0], manifest.shards).lo, shard_range(shards[-1], manifest.shards).hi)


def _parts(hashes: HashRange, count: int) -> Iterator[HashRange]:
    """So many adjacent ranges, or fewer: each has all hashes with the same shard bits."""
    below = 64 - SHARD_BITS
    first, until = hashes.lo >> below, (hashes.hi >> below) + 1
    edges = sorted({first + (until - first) * number // count for number in range(count + 1)})
    for lo, hi in pairwise(edges):
        yield HashRange(max(lo << below, hashes.lo), min((hi << below) - 1, hashes.hi))
