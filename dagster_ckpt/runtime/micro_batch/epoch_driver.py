"""The driver of an epoch: one micro-batch in, one manifest out, or nothing."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from pyspark.sql import DataFrame

from dagster_ckpt.clock import Clock
from dagster_ckpt.errors import (
    CheckpointDeclinedError,
    CheckpointError,
    CorruptStateError,
    IncompatibleStateError,
    InvalidPipelineError,
    StoreUnavailableError,
)
from dagster_ckpt.ids import Epoch, Shard
from dagster_ckpt.operators.registry import COUNTED_IN_ANY_STEP
from dagster_ckpt.protocol.ack import ShardAck
from dagster_ckpt.protocol.coordinator.checkpoint_coordinator import CheckpointCoordinator
from dagster_ckpt.protocol.lease import EpochProgress
from dagster_ckpt.protocol.manifest.manifest import (
    IndexedList,
    InitialTable,
    Manifest,
    Pipeline,
    ReadBy,
    SourceIdentity,
    SourcePosition,
)
from dagster_ckpt.protocol.transitions.edits import EpochEdit
from dagster_ckpt.protocol.transitions.step_changes import StepChange
from dagster_ckpt.runtime.catalyst.physical_plan import PlannedRows
from dagster_ckpt.runtime.catalyst.query_plan import refuse_unknown_state
from dagster_ckpt.runtime.declared.function_digests import Digests
from dagster_ckpt.runtime.declared.sources import StreamSource, positions_by_source
from dagster_ckpt.runtime.micro_batch.driver_work import DriverWork
from dagster_ckpt.runtime.micro_batch.epoch_job import EpochJob, JobOutcome, JobProgress
from dagster_ckpt.runtime.micro_batch.executor_files import ExecutorFiles
from dagster_ckpt.runtime.micro_batch.initial_tables import refuse_other_tables
from dagster_ckpt.runtime.micro_batch.seen_files import refuse_files_read_twice
from dagster_ckpt.runtime.micro_batch.spark_checkpoint import Advance, SparkCheckpoint, read_ranges
from dagster_ckpt.runtime.micro_batch.watermarks import Watermarks
from dagster_ckpt.runtime.task.ack_rows import Reply, ShardDecline, merge_acks
from dagster_ckpt.runtime.task.arrow_work import LeftToSparkError
from dagster_ckpt.runtime.task.epoch_task import SCAN_PROPERTY, EpochOrder, ReplyAccumulator
from dagster_ckpt.runtime.task.row_intake import NULL_ROWS
from dagster_ckpt.runtime.task.shard_assignment import ShardAssignment
from dagster_ckpt.storage.leases.heartbeat import Pulse
from dagster_ckpt.storage.writer.stream_writer import StreamWriter

Positions = tuple[SourcePosition, ...]
Assignments = tuple[ShardAssignment, ...]

_FINAL: dict[str, type[CheckpointError]] = {
    error.__name__: error for error in (CorruptStateError, IncompatibleStateError, InvalidPipelineError)
}


@dataclass(frozen=True)
class CommittedEpoch:
    """An epoch that has just become visible.

    `commit_ms` is the time for the manifest, `epoch_ms` for the whole epoch since Spark handed the micro-batch over.
    `counters` are those of the last step's operator, and of changes that an earlier step has dropped.
    """

    manifest: Manifest
    commit_ms: int
    epoch_ms: int
    counters: Mapping[str, int]


@dataclass(frozen=True)
class DriverSetup:
    """What the driver of one query works with.

    `replies` takes the replies of all steps but the last. `watermarks` has each input's effect on the watermark.
    `horizon_us` is the operator's: None where nothing waits for the watermark. `pulse` gets a sign at each step of an
    epoch. `checked` takes the sources' positions before and after an epoch's tasks, and returns those to commit; it
    raises where the tasks cannot have read everything between. `files` checks the replies of other hosts, if it must.
    `functions` are the digests of the user's functions.
    """

    asset: str
    writer: StreamWriter
    coordinator: CheckpointCoordinator
    checkpoint: SparkCheckpoint
    checked: Callable[[Positions, Positions], Positions]
    sources: tuple[StreamSource, ...]
    replies: ReplyAccumulator
    watermarks: Watermarks
    horizon_us: int | None
    on_commit: Callable[[CommittedEpoch], None]
    pulse: Pulse
    clock: Clock
    files: ExecutorFiles | None = None
    functions: Digests = ()


class EpochDriver:
    """Makes epochs, one at a time, in the thread in which Spark calls `foreachBatch`."""

    def __init__(self, setup: DriverSetup) -> None:
        self._setup = setup
        self._job: EpochJob | None = None
        self._last_batch = setup.checkpoint.last_batch
        self._offsets = setup.checkpoint.offsets(self._last_batch)

    def work(self, frame: DataFrame | PlannedRows | DriverWork, assignments: Assignments, batch_id: int) -> None:
        """Make an epoch from a micro-batch. It is committed when this returns; when this raises, it may not be.

        `frame` is `shard_replies`, `assignments` are those of its steps. A crash before the commit leaves unreferenced
        files, a crash after it a committed epoch: the next start resumes from the newest manifest either way.
        """
        setup = self._setup
        began_ms = setup.clock.monotonic_ms()
        setup.pulse.sign()
        if setup.checkpoint.has_spark_state():
            refuse_unknown_state(setup.asset)
        self._check_is_next(batch_id)
        advances = setup.checkpoint.advances(batch_id)
        for advance in advances:
            refuse_files_read_twice(setup.asset, advance.files)
        self.commit_initial_positions()
        try:
            acks = self._acks(frame, assignments)
        except (CheckpointDeclinedError, InvalidPipelineError) as error:
            # It may be the fault of a row, which the task knows, but not where it comes from.
            read = read_ranges(self._known_positions(), advances)
            raise (type(error)(f"{error}, read={read}") if read else error) from error.__cause__
        positions = setup.checked(self._known_positions(), self._positions(advances))
        made = self._commit_acks(acks, positions, batch_id, began_ms, read_by=_who_reads(frame))
        self._last_batch, self._offsets = batch_id, setup.checkpoint.offsets(batch_id)
        self._report(made)

    def emit_due(self, frame: DataFrame, assignments: Assignments) -> None:
        """Make an epoch without input, which emits everything that waited for the watermark.

        `frame` is `shard_replies_of_own_epoch`. As safe as `work`.
        """
        self._make_without_input(frame, assignments, self._known_positions())

    def _make_without_input(self, frame: DataFrame, assignments: Assignments, positions: Positions) -> None:
        began_ms = self._setup.clock.monotonic_ms()
        self._setup.pulse.sign()
        acks = self._acks(frame, assignments)
        self._report(self._commit_acks(acks, positions, self._last_batch, began_ms))

    @property
    def knows_ends(self) -> bool:
        """Whether each source that begins at its end has said where that is."""
        initials = zip(self._setup.sources, self._setup.checkpoint.initials(), strict=True)
        return all(initial is not None for source, initial in initials if source.begins_at_end)

    def begin(self, frame: DataFrame, assignments: Assignments, of: Mapping[SourceIdentity, InitialTable]) -> None:
        """Make a stream's first epoch, of rows that it begins with: tables before these sources. As safe as `work`.

        `frame` is `shard_replies` of these rows. A crash before the commit leaves an empty stream, which begins again.
        Call it once `knows_ends`: what a source gets between this epoch and its first answer would never be read.
        Raises `InvalidPipelineError` where the stream has begun before, with other rows of these tables.
        """
        known = self._initial_positions()
        then = {each.source: each.table for each in known if each.table is not None}
        refuse_other_tables(self._setup.asset, then, of)
        begun = (
            replace(each, after_table=True, table=each.table or of[each.source]) if each.source in of else each
            for each in known
        )
        self._make_without_input(frame, assignments, tuple(begun))

    def restart_steps(self, frame: DataFrame, assignments: Assignments, change: StepChange) -> None:
        """Make the first epoch of changed steps, without input. As safe as `work`: a crash leaves the old steps or it.

        `frame` is `shard_replies_of_own_epoch` with the kept steps. Those that no changed step reads have no tasks in
        it, unless the last one is among them.
        """
        setup = self._setup
        began_ms = setup.clock.monotonic_ms()
        setup.pulse.sign()
        last, idle = len(change.after.before), ShardAssignment.unkeyed(setup.writer.manifest.shards)
        at_work = [number not in change.kept or number in {*change.read, last} for number in range(last + 1)]
        acks = self._acks(
            frame, tuple(each if works else idle for each, works in zip(assignments, at_work, strict=True))
        )
        self._report(self._commit_acks(acks, self._known_positions(), self._last_batch, began_ms, change.after))

    @property
    def is_due(self) -> bool:
        """Whether the watermark has moved since the last tasks ran, so that rows may be due."""
        manifest = self._setup.writer.manifest
        return self._setup.horizon_us is not None and manifest.harvested_us != manifest.watermark_us

    def commit_initial_positions(self) -> None:
        """Commit the sources' initial positions as an epoch without rows, once known; not while `work` runs.

        Done before a source's first row, and also where none comes: after a restart `latest` would be elsewhere.
        """
        positions = self._initial_positions()
        if any(now.initial != was.initial for now, was in zip(positions, self._known_positions(), strict=True)):
            self._commit_without_work(positions)

    def advance_past_idle_inputs(self) -> None:
        """Advance the watermark, by an epoch without rows, where it waited only for inputs that are idle now.

        Call it when Spark has looked for rows since the last epoch and found none.
        """
        setup = self._setup
        idle = setup.watermarks.idle_at(setup.clock.monotonic_ms())
        if setup.horizon_us is not None and setup.watermarks.would_move(setup.writer.manifest, idle):
            self._commit_without_work(self._known_positions(), idle=idle)

    def commit_end_of_input(self) -> None:
        """Advance the watermark past everything that waits, by an epoch without rows: the input has ended."""
        manifest, horizon_us = self._setup.writer.manifest, self._setup.horizon_us
        times_us = [time_us for time_us in manifest.event_times_us if time_us is not None]
        if horizon_us is None or not times_us:
            return
        end_us = max(times_us) + horizon_us
        if self._setup.watermarks.would_move(manifest, at_least_us=end_us):
            self._commit_without_work(self._known_positions(), at_least_us=end_us)

    def abort(self, reason: str) -> None:
        """Abort the epoch in progress, from another thread: `work` raises soon."""
        job = self._job
        if job is not None:
            job.abort(reason)

    def _commit_acks(
        self,
        acks: tuple[ShardAck, ...],
        positions: Positions,
        batch_id: int,
        began_ms: int,
        pipeline: Pipeline | None = None,
        read_by: ReadBy | None = None,
    ) -> CommittedEpoch:
        """Commit what the tasks have made. In the first epoch of a changed `pipeline` kept steps emit nothing due."""
        setup, clock = self._setup, self._setup.clock
        setup.pulse.sign()
        commit_began_ms = clock.monotonic_ms()
        watermarks = setup.watermarks
        watermarks.saw(_newest(ack.event_times_us for ack in acks))
        epoch_ms, idle = commit_began_ms - began_ms, watermarks.idle_at(began_ms)
        interval_ms = setup.coordinator.interval_ms
        manifest = self._commit(
            EpochEdit(
                acks,
                positions,
                batch_id,
                epoch_ms,
                watermarks.delays_us,
                idle,
                ran_tasks=pipeline is None,
                interval_ms=interval_ms,
                functions=setup.functions,
                read_by=read_by,
            ),
            pipeline,
        )
        ended_ms = clock.monotonic_ms()
        setup.pulse.sign()
        return CommittedEpoch(
            manifest,
            commit_ms=ended_ms - commit_began_ms,
            epoch_ms=ended_ms - began_ms,
            counters=_sum_counters(acks, len(manifest.pipeline.before)),
        )

    def _report(self, made: CommittedEpoch) -> None:
        """Report a committed epoch."""
        self._setup.writer.check_term()
        self._setup.on_commit(made)
        self._setup.pulse.sign()

    def _commit_without_work(
        self, positions: Positions, *, idle: tuple[bool, ...] = (), at_least_us: int | None = None
    ) -> None:
        setup = self._setup
        nothing = setup.coordinator.begin_without_work(setup.writer.next_epoch)
        self._commit(
            EpochEdit(
                nothing,
                positions,
                self._last_batch,
                0,
                setup.watermarks.delays_us,
                idle,
                ran_tasks=False,
                at_least_us=at_least_us,
                interval_ms=setup.coordinator.interval_ms,
                functions=setup.functions,
            )
        )

    def _check_is_next(self, batch_id: int) -> None:
        """Spark must resume exactly where the manifest ends: anything else would lose rows or count them twice."""
        found = self._setup.checkpoint.offsets(batch_id - 1)
        if batch_id != self._last_batch + 1 or found != self._offsets:
            raise CheckpointDeclinedError(
                "Spark handed over another batch than the next one; nothing of it was committed. "
                f"batch={batch_id}, expected={self._last_batch + 1}, starts_at={found}, expected_at={self._offsets}"
            )

    def _acks(self, frame: DataFrame | PlannedRows | DriverWork, assignments: Assignments) -> tuple[ShardAck, ...]:
        """Run the tasks; one ACK of each shard, in order. Raises where the coordinator gives the epoch up.

        Raises `LeftToSparkError` where a task has found what only Spark can read: nothing has failed, but the number of
        the epoch is not used again, so it is made in another term.
        """
        setup = self._setup
        manifest, epoch = setup.writer.manifest, setup.writer.next_epoch
        order = EpochOrder(epoch, manifest.term, manifest.version, manifest.nonce)
        setup.coordinator.begin(epoch)
        outcome = frame.run(order) if isinstance(frame, DriverWork) else self._run_job(frame, order, assignments[-1])
        for reply in outcome.replies:
            if isinstance(reply, ShardDecline) and reply.error == LeftToSparkError.__name__:
                raise LeftToSparkError(reply.reason)
        if setup.files is not None:
            outcome = replace(outcome, replies=setup.files.decline_unseen(outcome.replies, epoch))
        try:
            return acks_of(setup.coordinator, epoch, outcome, assignments)
        except CheckpointError as error:
            raise self._error(outcome, error) from outcome.error

    def _run_job(self, frame: DataFrame | PlannedRows, order: EpochOrder, assignment: ShardAssignment) -> JobOutcome:
        setup = self._setup
        on_progress = partial(self._report_progress, order.epoch, setup.clock.monotonic_ms())
        self._job = EpochJob(
            frame, order, assignment, setup.replies, f"dagster-ckpt-{setup.clock.unique()}", on_progress
        )
        try:
            return self._job.run(setup.coordinator.timeout_ms)
        finally:
            self._job = None
            setup.writer.heartbeat.works(None)

    def _report_progress(self, epoch: Epoch, began_ms: int, progress: JobProgress) -> None:
        """Report the epoch's progress in the lease, from its next beat on."""
        clock, slowest = self._setup.clock, progress.slowest
        self._setup.writer.heartbeat.works(
            EpochProgress(
                epoch=epoch,
                elapsed_ms=clock.monotonic_ms() - began_ms,
                tasks_done=progress.tasks_done,
                tasks=progress.tasks,
                slowest=None if slowest is None else slowest.name,
                slowest_ms=0 if slowest is None else max(0, clock.now_ms() - progress.began_ms),
            )
        )

    def _error(self, outcome: JobOutcome, error: CheckpointError) -> CheckpointError:
        """What to raise for an epoch that was given up: no retry mends damage or a too old release."""
        final = final_error(outcome.replies)
        if final is not None:
            # A file may be missing because another writer has retired it.
            self._setup.writer.check_term()
            error = final
        elif _store_did_not_answer(outcome.replies):
            error = StoreUnavailableError(str(error))
        # Tasks do not know the asset's name.
        return type(error)(f"{error}, asset={self._setup.asset}")

    def _commit(self, edit: EpochEdit, pipeline: Pipeline | None = None) -> Manifest:
        writer, coordinator = self._setup.writer, self._setup.coordinator
        epoch = writer.next_epoch
        try:
            manifest = writer.commit(edit, pipeline)
        except CheckpointError as error:
            coordinator.fail_commit(epoch, str(error))
            raise
        coordinator.commit(epoch, self._setup.clock.monotonic_ms())
        return manifest

    def _known_positions(self) -> Positions:
        return positions_by_source(self._setup.sources, self._setup.writer.manifest)

    def _initial_positions(self) -> Positions:
        """The known positions, with the initial ones that Spark has found since."""
        known = self._known_positions()
        found = tuple(
            position if position.initial == initial else replace(position, initial=initial, previous=position.current)
            for position, initial in zip(known, self._setup.checkpoint.initials(), strict=True)
        )
        return known if found == known else self._setup.checked(known, found)

    def _positions(self, advances: tuple[Advance, ...]) -> Positions:
        return tuple(
            replace(
                position,
                previous=position.current,
                current=advance.current,
                files=IndexedList(position.files.index, (*position.files.tail, *advance.files)),
            )
            for position, advance in zip(self._known_positions(), advances, strict=True)
        )


def _who_reads(frame: DataFrame | PlannedRows | DriverWork) -> ReadBy:
    if isinstance(frame, DriverWork):
        return ReadBy.DRIVER
    return ReadBy.TASKS if isinstance(frame, PlannedRows) and SCAN_PROPERTY in frame.properties else ReadBy.SPARK


def final_error(replies: Iterable[Reply]) -> CheckpointError | None:
    """The reason why a shard declined, where no retry can succeed."""
    for reply in replies:
        if isinstance(reply, ShardDecline) and reply.error in _FINAL:
            return _FINAL[reply.error](reply.reason)
    return None


def _store_did_not_answer(replies: Iterable[Reply]) -> bool:
    """Whether every shard that declined did so because of the store: the stream is not at fault then."""
    declined = [reply.error for reply in replies if isinstance(reply, ShardDecline)]
    return bool(declined) and all(error == StoreUnavailableError.__name__ for error in declined)


def _newest(times_us: Iterable[tuple[int | None, ...]]) -> tuple[int | None, ...]:
    """The greatest time of each input."""
    return tuple(
        max((time_us for time_us in of_input if time_us is not None), default=None)
        for of_input in zip(*filter(None, times_us), strict=True)
    )


def _sum_counters(acks: Iterable[ShardAck], last_step: int) -> Mapping[str, int]:
    """The counters of the last step, since those of another operator may have the same names, and what was dropped."""
    counted: Counter[str] = Counter()
    for ack in acks:
        is_last = ack.step == last_step
        counted.update({name: n for name, n in ack.counters if is_last or name in {*COUNTED_IN_ANY_STEP, NULL_ROWS}})
    return counted


def acks_of(
    coordinator: CheckpointCoordinator, epoch: Epoch, outcome: JobOutcome, assignments: Sequence[ShardAssignment]
) -> tuple[ShardAck, ...]:
    """Report the job's outcome to the coordinator; returns the ACKs to commit. Raises where it gives the epoch up."""
    if outcome.silent is not None:
        shards = sorted({shard for task in outcome.silent for shard in task.shards})
        coordinator.timeout(epoch, tuple(task.name for task in outcome.silent), tuple(shards))
    elif outcome.aborted is not None:
        coordinator.abort(outcome.aborted)
    elif outcome.error is not None:
        coordinator.decline(epoch, None, "", outcome.reason)
    elif (wrong := _wrong_replies(outcome, assignments)) is not None:
        coordinator.decline(epoch, None, "", wrong)
    else:
        for reply in _whole(outcome, assignments):
            if isinstance(reply, ShardAck):
                coordinator.ack(epoch, reply)
            else:
                coordinator.decline(epoch, reply.shard, reply.host, reply.reason)
    return coordinator.end_job(epoch)


def _wrong_replies(outcome: JobOutcome, assignments: Sequence[ShardAssignment]) -> str | None:
    """What is wrong with the replies of an unkeyed last step: each of its tasks sends one. None: nothing.

    Spark logs an accumulator's failed update, and the job goes on. The coordinator finds it where a shard has one task;
    here any number of tasks have the rows of a shard.
    """
    last = len(assignments) - 1
    if assignments[last].tasks is not None or outcome.last_tasks is None:
        return None
    replies = sum(isinstance(reply, ShardDecline) or reply.step == last for reply in outcome.replies)
    if replies == outcome.last_tasks:
        return None
    return (
        "the replies of the tasks are not those of all of them: look in the log for a failed update of an accumulator. "
        f"tasks={outcome.last_tasks}, replies={replies}"
    )


def _whole(outcome: JobOutcome, assignments: Sequence[ShardAssignment]) -> Iterable[Reply]:
    """A reply for each shard in each step. Only a shuffled step's can be missing: each of its shards has one task."""
    for step, assignment in enumerate(assignments):
        replies = [reply for reply in outcome.replies if isinstance(reply, ShardDecline) or reply.step == step]
        if assignment.tasks is not None and outcome.had_tasks:
            yield from replies
            continue
        acks = merge_acks(reply for reply in replies if isinstance(reply, ShardAck))
        absent = (ShardAck(Shard(shard), step=step) for shard in range(assignment.shards) if shard not in acks)
        yield from (reply for reply in replies if isinstance(reply, ShardDecline))
        yield from (*acks.values(), *absent)
