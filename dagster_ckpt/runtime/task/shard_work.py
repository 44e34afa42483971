"""One task's part of an epoch: its rows go through the operator, and the results are made durable."""

import socket
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dagster_ckpt.clock import Clock
from dagster_ckpt.errors import CheckpointDeclinedError
from dagster_ckpt.ids import Epoch, Shard, Term
from dagster_ckpt.operators.local_aggregate import LocalAggregate
from dagster_ckpt.operators.operator import Changes, EpochContext, Operator, change_log_table
from dagster_ckpt.operators.partial_aggregate import PartialAggregate
from dagster_ckpt.operators.registry import counters_of
from dagster_ckpt.operators.rows.append import AppendOnly
from dagster_ckpt.operators.shared.late_rows import is_late_table, keep_late, late_table
from dagster_ckpt.protocol.ack import FilesMerged, ShardAck
from dagster_ckpt.protocol.manifest.manifest import ChangeRef, Manifest
from dagster_ckpt.protocol.object_names import FileId, merged_name
from dagster_ckpt.protocol.transitions.append_merges import FileMergeLimits, choose
from dagster_ckpt.protocol.transitions.renamed_columns import names_in_files
from dagster_ckpt.runtime.task.ack_rows import Reply
from dagster_ckpt.runtime.task.row_intake import Intake, cut_chunks, rows_by_input
from dagster_ckpt.runtime.task.shard_assignment import ShardAssignment
from dagster_ckpt.state.committed import append_files, change_log
from dagster_ckpt.state.engine import Engine
from dagster_ckpt.state.io_pool import Job
from dagster_ckpt.state.task_state import StateMetrics, TaskState, open_state
from dagster_ckpt.storage.stores.object_store import ObjectStore


@dataclass(frozen=True)
class ShardWork:
    """What a task works with. `store` is the stream's folder, `manifest` what the epoch builds on.

    `step` is the number of the step that the task belongs to, and `event_times` are of its inputs. `attempt` is unique
    among all task attempts of this term: it is in the name of every file written here.
    """

    store: ObjectStore
    manifest: Manifest
    epoch: Epoch
    term: Term
    attempt: int
    assignment: ShardAssignment
    event_times: tuple[str | None, ...]
    clock: Clock
    engine: Engine
    step: int = 0

    @property
    def is_last(self) -> bool:
        """Whether the step's changes are those of the stream's table."""
        return self.step == len(self.manifest.pipeline.before)

    def append(self, operator: AppendOnly, partition: int, batches: Iterable[pa.RecordBatch]) -> ShardAck:
        """Append the rows to the stream's table, one file per chunk. One task of an epoch also merges older files."""
        [shard] = self.assignment.shards_of(partition)
        intake = Intake(self.event_times, self.clock)
        merging = self._begin_merge(shard) if partition == 0 else None
        changes: list[ChangeRef] = []
        for chunk in intake.chunks(self._chunks(batches)):
            intake.see(0, chunk)
            rows = chunk.select(operator.pipeline.output.names).cast(operator.pipeline.output)
            changes.extend(self._write_changes(operator.changes(rows), self._file(shard, len(changes))))
        merged = None if merging is None else merging.result()
        return ShardAck(
            shard,
            changes=tuple(changes),
            rows_in=0 if self._inputs[0] is None else intake.rows,
            rows_from_steps=intake.rows if self._inputs[0] is None else 0,
            rows_out=intake.rows,
            event_times_us=self._of_stream(intake.event_times_us),
            milliseconds=intake.busy_ms,
            host=socket.gethostname(),
            counters=intake.counters,
            merged_rows=0 if merged is None else merged.file.rows,
            files_merged=merged,
            step=self.step,
        )

    def _begin_merge(self, shard: Shard) -> Job[FilesMerged | None] | None:
        """Merge files of earlier epochs while rows come in, if it is time. The merged files stay.

        If the epoch is given up, or another attempt at this task finishes first, no manifest references the new file.
        """
        limits = FileMergeLimits()
        limits = replace(limits, bytes_max=min(limits.bytes_max, self.engine.budget.soft_bytes))
        choice = choose(self.manifest.files.tail, limits)
        if choice is None:
            return None
        file, chunk_bytes = self._file(shard, 0), self.engine.budget.chunk_bytes
        until_ms = self.clock.monotonic_ms() + self.engine.io.timeout_ms // 4
        return self.engine.io.submit(
            f"merging {len(choice.files)} files into {merged_name(choice.merges, file)}",
            lambda: append_files.merge(
                self.store, file, choice, chunk_bytes, lambda: self.clock.monotonic_ms() < until_ms
            ),
        )

    def transform(
        self,
        operator: Operator,
        shards: Sequence[Shard],
        batches: Iterable[pa.RecordBatch],
        replies: list[Reply],
        partial: PartialAggregate | LocalAggregate | None = None,
    ) -> Iterator[pa.Table]:
        """Run the rows of all shards through a stateful operator. Each shard ACKs, with or without rows.

        `partial` takes them in instead, where they are partial aggregates.

        Yields the changes for the next step, none in the last one. The ACKs are added to `replies` once all is durable,
        when everything was yielded; that of the first shard has the counts for the task as a whole.
        """
        intake = Intake(self.event_times, self.clock)
        context = self._context(shards)
        merging = (
            self._begin_merge(shards[0]) if self.is_last and operator.pipeline.appends and shards[0] == 0 else None
        )
        file = self._file(shards[0], 0)
        with open_state(
            self.store, self.manifest, shards, file, self.engine, change_log_table(operator), self.step
        ) as state:
            state.compact()
            rows_in, from_steps, late_by_input = self._take_in(operator, state, context, intake, batches, partial)
            finished = _Finished()
            yield from self._finish(operator, state, context, finished)
            tables = state.flush()
            merged = None if merging is None else merging.result()
            nothing = self._of_stream(tuple(None for _ in self.event_times))
            busy_ms, host, counters = intake.busy_ms, socket.gethostname(), counters_of(operator.pipeline)
            first, *others = (
                ShardAck(
                    shard,
                    tables[shard],
                    rows_in=rows,
                    rows_from_steps=passed,
                    event_times_us=nothing,
                    milliseconds=busy_ms,
                    host=host,
                    step=self.step,
                )
                for shard, rows, passed in zip(shards, rows_in, from_steps, strict=True)
            )
            whole = replace(
                first,
                changes=(*state.log, *finished.files) if self.is_last else (),
                rows_out=finished.rows if self.is_last else 0,
                rows_to_steps=0 if self.is_last else finished.rows,
                late_rows=sum(late_by_input),
                late_rows_by_input=self._late_by_input(late_by_input),
                state_rows=state.metrics.state_rows,
                event_times_us=self._of_stream(intake.event_times_us),
                merged_rows=state.metrics.merged_rows + (0 if merged is None else merged.file.rows),
                stall_ms=state.metrics.stall_ms,
                counters=(
                    *((name, context.counters[name]) for name in counters),
                    *intake.counters,
                ),
                files_merged=merged,
                table_rows=finished.table_rows(state.metrics) if self.is_last else 0,
            )
        replies += [whole, *others]

    def _context(self, shards: Sequence[Shard]) -> EpochContext:
        return EpochContext.following(self.manifest, self.epoch, shards, self.engine.budget.soft_bytes, self.step)

    @property
    def _inputs(self) -> tuple[int | None, ...]:
        return self.manifest.pipeline.inputs_of_stream(self.step)

    def _of_stream(self, times_us: tuple[int | None, ...]) -> tuple[int | None, ...]:
        """The times of this step's inputs as those of the stream's."""
        found: list[int | None] = [None] * len(self.manifest.pipeline.source_inputs)
        for number, time_us in zip(self._inputs, times_us, strict=True):
            if number is not None:
                found[number] = time_us
        return tuple(found)

    def _late_by_input(self, late: Sequence[int]) -> tuple[int, ...]:
        if not any(late):
            return ()
        places = self.manifest.pipeline.input_places
        return tuple(late[number] if step == self.step else 0 for step, number in places)

    def _chunks(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
        return cut_chunks(batches, self.engine.budget.chunk_bytes)

    def _take_in(
        self,
        operator: Operator,
        state: TaskState,
        context: EpochContext,
        intake: Intake,
        batches: Iterable[pa.RecordBatch],
        partial: PartialAggregate | LocalAggregate | None,
    ) -> tuple[list[int], list[int], list[int]]:
        """Process the rows.

        Returns how many each shard had from sources, how many from earlier steps, and how many of each input were late.
        """
        schemas = [partial.schema] if partial else [source.schema for source in operator.pipeline.inputs]
        kept = {spec.name for spec in operator.pipeline.tables if is_late_table(spec.name)}
        rows_in, from_steps = np.zeros((2, len(context.shards)), dtype=np.int64)
        late_rows = [0] * len(schemas)
        passed_on = context.of_earlier_step(self.manifest, self.step)
        contexts = [passed_on if each is None else context for each in self._inputs]
        for chunk in intake.chunks(self._chunks(batches)):
            for number, hashes, rows in rows_by_input(chunk, schemas):
                shards = self.assignment.shards_in(hashes)
                self._check_shards(shards, context)
                # The stream counts rows, not groups. Sums of doubles are exact up to 2**53.
                counts = partial.rows_in(rows) if partial else None
                by_shard = np.bincount(shards - np.uint16(context.shards[0]), counts, len(rows_in)).astype(np.int64)
                if self._inputs[number] is None:
                    from_steps += by_shard
                else:  # the stream counts the rows that come from outside
                    intake.see(number, rows)
                    intake.null_rows += partial.null_rows_in(rows) if partial else 0
                    rows_in += by_shard
                late = (partial or operator).on_rows(number, hashes, rows, state, contexts[number])
                late_rows[number] += len(late)
                time = self.event_times[number]
                if len(late) and time is not None and late_table(number) in kept:
                    keep_late(state.timeline(late_table(number)), hashes, rows, late, time, context)
            state.relieve()
        return rows_in.tolist(), from_steps.tolist(), late_rows

    def _check_shards(self, shards: npt.NDArray[np.uint16], context: EpochContext) -> None:
        """Decline the epoch if Spark has brought a row to a task of other shards: their state is not here."""
        if len(shards) and not context.shards[0] <= shards.min() <= shards.max() <= context.shards[-1]:
            raise CheckpointDeclinedError(
                "Spark brought rows to a task that has other shards: leave the partitions of the rows between two "
                f"steps as they are. step={self.step}, shards_of_task={list(context.shards)}, "
                f"shards_of_rows={shards.min()}..{shards.max()}"
            )

    def _finish(
        self, operator: Operator, state: TaskState, context: EpochContext, finished: "_Finished"
    ) -> Iterator[pa.Table]:
        """Finish the operator: write the changes, or yield them for the next step."""
        files = finished.files
        held: pa.Table | None = None
        for changes in operator.finish(state, context):
            finished.add(changes)
            if not self.is_last:
                if changes.count:
                    if held is not None:
                        yield held
                    held = changes.rows
                    if held.nbytes > self.engine.budget.chunk_bytes:
                        yield held
                        held = None
            elif operator.table is None:
                files.extend(self._write_changes(changes, self._file(context.shards[0], len(files))))
            # A logged table may flush here too: its runs are the change log whenever they are written, since they hold
            # the rows before. `touched` goes on with what it found in memory; the table does not change meanwhile.
            state.relieve()
        if held is not None:
            # The files become durable while Spark takes the last rows, for which the next step waits.
            state.write()
            yield held

    def _write_changes(self, changes: Changes, file: FileId) -> Iterator[ChangeRef]:
        ref = change_log.write(self.store, file, changes.rows, names_in_files(self.manifest.pipeline))
        if ref is not None:
            yield ref

    def _file(self, shard: Shard, number: int) -> FileId:
        return FileId(self.term, self.epoch, shard, self.attempt, number)


@dataclass
class _Finished:
    """How many rows the step's changes have, and the files written for them."""

    rows: int = 0
    files: list[ChangeRef] = field(default_factory=list)
    more_rows: int | None = None

    def add(self, changes: Changes) -> None:
        self.rows += changes.count
        if changes.more_rows is not None:
            self.more_rows = (self.more_rows or 0) + changes.more_rows

    def table_rows(self, metrics: StateMetrics) -> int:
        """How many more rows the stream's table has: as many as its state table, unless that counts them."""
        return metrics.table_rows if self.more_rows is None else self.more_rows
