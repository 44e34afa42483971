"""A stream's run: open it, make epochs until there is a reason to end, retry failures, end cleanly."""

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import count
from typing import TypeVar

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from dagster_ckpt.clock import Clock
from dagster_ckpt.errors import (
    CheckpointDeclinedError,
    CorruptStateError,
    FencedError,
    IncompatibleStateError,
    InvalidPipelineError,
    StoreUnavailableError,
)
from dagster_ckpt.history.damage.damage_advice import advised
from dagster_ckpt.ids import EMPTY, Epoch
from dagster_ckpt.protocol.coordinator.checkpoint_coordinator import CheckpointCoordinator
from dagster_ckpt.protocol.lease import interruption
from dagster_ckpt.protocol.manifest.codec import FILE_SEEN, FILES_SEEN
from dagster_ckpt.protocol.manifest.manifest import Pipeline
from dagster_ckpt.protocol.redaction import redacted_text
from dagster_ckpt.protocol.transitions.step_changes import StepChange
from dagster_ckpt.runtime.declared.function_digests import changed_functions
from dagster_ckpt.runtime.declared.sources import moves_of, positions_by_source
from dagster_ckpt.runtime.declared.stream import Stream
from dagster_ckpt.runtime.driver.collector_thread import CollectorThread
from dagster_ckpt.runtime.driver.epoch_driver import CommittedEpoch, DriverSetup, EpochDriver
from dagster_ckpt.runtime.driver.epoch_plans import EpochPlans
from dagster_ckpt.runtime.driver.executor_files import ExecutorFiles
from dagster_ckpt.runtime.driver.partial_choice import Shuffled
from dagster_ckpt.runtime.driver.run_end import RunEnd
from dagster_ckpt.runtime.driver.seen_files import spelled_now
from dagster_ckpt.runtime.driver.spark_checkpoint import SparkCheckpoint, build_checkpoint, conf_of
from dagster_ckpt.runtime.driver.spark_errors import explained, jvm_is_gone, reason_of
from dagster_ckpt.runtime.driver.stream_checks import (
    CheckedStream,
    as_stored,
    can_aggregate_before,
    cannot_run,
    check_stream,
    event_times_of,
    initial_rows,
    stages_of,
)
from dagster_ckpt.runtime.driver.stream_job import Ending, JobHooks, JobResult, StreamJob
from dagster_ckpt.runtime.driver.streaming_query import EpochQuery, did_not_start
from dagster_ckpt.runtime.driver.watermarks import InputWatermark, Watermarks
from dagster_ckpt.runtime.kafka.topics import Topics
from dagster_ckpt.runtime.lag.lag import Lag
from dagster_ckpt.runtime.lag.lag_gauge import LagGauge
from dagster_ckpt.runtime.lag.source_lags import SourceLags
from dagster_ckpt.runtime.run_mode import Mode
from dagster_ckpt.runtime.spark.package_archive import archive_of
from dagster_ckpt.runtime.spark.process_folder import remove_abandoned
from dagster_ckpt.runtime.spark.redacted_errors import secrets_left_out
from dagster_ckpt.runtime.spark.session import is_alive, is_local
from dagster_ckpt.runtime.spark.task_slots import task_slots
from dagster_ckpt.runtime.spark.wide_rows import limit_batches, plan_wide_rows
from dagster_ckpt.runtime.task.dataflow import (
    Stage,
    on_initial,
    rows_of_sources,
    shard_replies,
    shard_replies_of_own_epoch,
)
from dagster_ckpt.runtime.task.epoch_task import Replies, TaskSetup
from dagster_ckpt.runtime.task.row_intake import NULL_ROWS
from dagster_ckpt.runtime.task.shard_assignment import ShardAssignment
from dagster_ckpt.runtime.task.worker_engine import check_cache
from dagster_ckpt.runtime.upstreams.upstreams import Upstreams
from dagster_ckpt.state.memory_budget import MemoryBudget
from dagster_ckpt.storage.chain.indexed_lists import IndexedLists
from dagster_ckpt.storage.chain.manifest_chain import ManifestChain
from dagster_ckpt.storage.holders.ancestors import check_ancestors, with_ancestors
from dagster_ckpt.storage.leases.liveness import Pulse
from dagster_ckpt.storage.operations.collector import Collector
from dagster_ckpt.storage.stores.folder import folder_store
from dagster_ckpt.storage.stores.object_store import ObjectStore
from dagster_ckpt.storage.writer.stream_writer import StreamWriter, open_stream
from dagster_ckpt.storage.writer.takeover_watch import TakeoverWatch

T = TypeVar("T")

_LOG = logging.getLogger(__name__)

_RETRIED = "%s failed and is tried again. asset=%s, failure=%s of %s tolerated, reason=%s"
_CHANGED = (
    "the code of these functions has changed: rows that were there before keep what the old code made of them. To have "
    "them made by the new code, rebuild the stream: dagster-ckpt rebuild. epoch=%s, asset=%s, functions=%s"
)
_NULLS = (
    "rows have nothing but nulls, as Spark makes them of malformed records (mode PERMISSIVE). They count like any "
    "other row; this is said once. To keep such records apart, see the page on reading files. rows=%s, epoch=%s, "
    "asset=%s"
)
_TICK_S = 0.2
_CANCEL_S_MAX = 10.0
_PLANNING_MS_MAX = 2_000
"""How long Spark may take to list new input and plan a batch, before an input counts as idle."""
_OPENING_MS_MAX = 60_000
"""How long a stream's opening is retried. A run that has not opened its stream three minutes after its start counts as
dead, and a store that cannot be written to takes no heartbeat to prove the contrary."""
_FINAL = (AssertionError, CorruptStateError, FencedError, IncompatibleStateError, InvalidPipelineError)
"""What no retry can mend."""


def run_stream(job: StreamJob, hooks: JobHooks, clock: Clock) -> JobResult:
    """Run a stream until its input is done, its time is up or `stop_reason` returns one. Blocks.

    Raises what ended it otherwise: `FencedError`, `InvalidPipelineError` and so on. An exception raised into this
    thread (an interrupt) ends it too, once the epoch in progress is finished or given up; the lease is closed then.
    After an error the lease is left to lapse, so that the sensor sees a stream to recover. `CorruptStateError` names
    the command that goes back to an epoch without the damaged object.
    """
    with secrets_left_out():
        return _run_stream(job, hooks, clock)


def _run_stream(job: StreamJob, hooks: JobHooks, clock: Clock) -> JobResult:
    checked = check_stream(job)
    remove_abandoned()
    root = job.address.open()
    store = folder_store(root, job.folder)
    check_cache(job.options.engine, store)
    moves = moves_of(job.asset, job.stream.frame.sparkSession, job.moved)
    chain = ManifestChain(store, clock)
    pulse = Pulse(clock, job.options.timeout_ms + job.options.slack_ms)
    end = RunEnd(job.options, hooks, clock, pulse)
    try:
        stored = partial(as_stored, checked, chain, job, moves)
        checked = _patiently(job, hooks, clock, end, stored)
        job = replace(job, stream=checked.stream)
        timed = frozenset(number for number, step in enumerate(checked.stream.steps) if any(event_times_of(step)))
        opening = replace(job.opening(checked.dataflow.pipeline), moves=moves, timed_steps=timed)
        upstreams = Upstreams(job.asset, checked.sources, root, chain)
        run = _Run(job, checked, upstreams, hooks, clock, pulse, end)
        return run.to_end(root, partial(open_stream, store, opening, clock, pulse))
    except CorruptStateError as error:
        # In its place, not caused by it: a reader of the innermost error alone must see the way back.
        better = advised(root, chain, job.asset, error)
        raise better.with_traceback(error.__traceback__) from error.__cause__


def _patiently(job: StreamJob, hooks: JobHooks, clock: Clock, end: RunEnd, opened: Callable[[], T]) -> T:
    """A step of the run's opening. A store that does not answer counts as one failure, as with an epoch."""
    tolerated, late_ms = job.options.tolerable_failures, clock.monotonic_ms() + _OPENING_MS_MAX
    for failures in count(1):
        try:
            return opened()
        except StoreUnavailableError as error:
            if failures > tolerated or clock.monotonic_ms() >= late_ms:
                raise
            _LOG.warning(_RETRIED, "the stream's opening", job.asset, failures, tolerated, error)
            if end.pause(failures, hooks.stop_reason) is not None:
                raise
    raise AssertionError("count() does not end")


class _Run:
    """One run: a writer and a query, or several of both in turn, where epochs failed."""

    _root: ObjectStore
    _writer: StreamWriter
    _coordinator: CheckpointCoordinator
    _plans: EpochPlans
    _source_lags: SourceLags

    def __init__(
        self,
        job: StreamJob,
        checked: CheckedStream,
        upstreams: Upstreams,
        hooks: JobHooks,
        clock: Clock,
        pulse: Pulse,
        end: RunEnd,
    ) -> None:
        self._job = job
        self._checked = checked
        self._upstreams = upstreams
        self._hooks = hooks
        self._clock = clock
        self._pulse = pulse
        self._replies = job.stream.frame.sparkSession.sparkContext.accumulator([], Replies())
        self._files: ExecutorFiles | None = None
        self._slow_since: tuple[Epoch, int] | None = None
        self._warned_of_nulls = False
        self._takeover_watch = TakeoverWatch(clock, job.options.checkpoint_interval_ms)
        self._end = end
        self._topics = Topics(job.asset, checked.sources, job.stream.frame.sparkSession, hooks.on_skipped)

    def to_end(self, root: ObjectStore, opened: Callable[[], StreamWriter]) -> JobResult:
        self._root = root
        session = self._job.stream.frame.sparkSession
        self._source_lags = SourceLags(self._checked.sources, session, root, self._topics, self._clock)
        options, chain = self._job.options, ManifestChain(folder_store(root, self._job.folder), self._clock)
        collector = Collector(chain, root, options.grace_ms, options.max_lag)
        collecting = CollectorThread(collector, self._clock, lambda: self._writer.term)
        if self._job.address.is_shared_folder and not is_local(session):
            self._files = ExecutorFiles(chain.store)
        self._writer = _patiently(
            self._job, self._hooks, self._clock, self._end, opened
        )  # no line between this and the try: an interrupt there would leave the heartbeat on
        try:
            self._hooks.on_open(self._writer.manifest)
            self._report_changed_functions()
            self._topics.committed(self._writer.manifest)
            check_ancestors(root, self._clock, self._writer.manifest)
            coordination, shards = options.coordination, self._writer.manifest.shards
            steps = len(self._checked.dataflow.operators)
            self._coordinator = CheckpointCoordinator(shards, coordination, self._clock.monotonic_ms(), steps)
            self._end.opened(self._writer)
            collecting.begin()
            result = self._try()
            while result is None:
                # A new term: tasks and the last commit of the old one may still take effect.
                result = self._reopen() or self._try()
            # The result is the writer's to report, also where there was nothing to commit.
            self._writer.check_term()
            self._writer.close(result.reason or result.ending)
        except Exception:
            self._writer.heartbeat.stop()
            raise
        except BaseException as interrupt:
            self._writer.close(interruption(type(interrupt).__name__))
            raise
        finally:
            collecting.end()
            self._topics.end()
        return result

    def _report_changed_functions(self) -> None:
        before = self._writer.manifest
        names = changed_functions(before.functions, self._checked.functions)
        if names:
            _LOG.warning(_CHANGED, before.epoch, self._job.asset, ", ".join(names))
            self._hooks.on_changed_functions(names)

    def _reopen(self) -> JobResult | None:
        """Begin a new term; returns the result where there is a reason to end before the store answers."""
        while True:
            try:
                self._writer = self._writer.reopen()
                return None
            except StoreUnavailableError as error:
                self._coordinator.reset(self._writer.manifest.shards, self._clock.monotonic_ms())
                if not self._may_try_again("the stream's reopening", error):
                    raise
            result = self._back_off()
            if result is not None:
                return result

    def _may_try_again(self, what: str, error: Exception) -> bool:
        """Count one more failure in a row; returns whether it is tolerated."""
        coordinator = self._coordinator
        coordinator.fail_try(str(error))
        if coordinator.may_try_again:
            failures, tolerated = coordinator.failures_in_a_row, coordinator.tolerable_failures
            _LOG.warning(_RETRIED, what, self._job.asset, failures, tolerated, redacted_text(reason_of(error)))
        return coordinator.may_try_again

    def _try(self) -> JobResult | None:
        """How the run ended; None where it may be retried."""
        self._coordinator.reset(self._writer.manifest.shards, self._clock.monotonic_ms())
        self._pulse.sign()
        try:
            self._upstreams.prepare(self._writer.manifest)
            return self._query_to_end()
        except _FINAL:
            raise
        except Exception as error:  # noqa: BLE001  (what is not tried again is raised, as itself or explained)
            if not is_alive(self._job.stream.frame.sparkSession):
                # Without a cause: an error of Spark's asks its JVM for its own text, and would raise another in its
                # place wherever it is shown.
                raise jvm_is_gone(self._job.asset, error, self._job.stream.frame.sparkSession) from None
            with suppress(StoreUnavailableError):
                # Of an error in another process Spark keeps only the text.
                self._upstreams.diagnose(self._writer.manifest, f"{error} {error.__cause__}")
            self._topics.diagnose(self._writer.manifest, has_failed_often=False)
            if self._is_only_slow(error):
                _LOG.warning(
                    "Spark's process that reads the upstream took more than 10 s to start, since this host is busy: "
                    "it is tried again. asset=%s",
                    self._job.asset,
                )
                return self._back_off()
            if not self._may_try_again("an epoch", error):
                self._topics.diagnose(self._writer.manifest, has_failed_often=True)
                session = self._job.stream.frame.sparkSession
                better = explained(self._job.asset, self._checked.sources, error, session)
                self._topics.check_answers(better)
                raise better from error.__cause__
            return self._back_off()

    def _is_only_slow(self, error: Exception) -> bool:
        """Whether the query's Python process was not up in time, for no longer than an epoch may take."""
        if not did_not_start(error):
            return False
        now_ms = self._clock.monotonic_ms()
        if self._slow_since is None or self._slow_since[0] < self._writer.manifest.epoch:
            self._slow_since = self._writer.manifest.epoch, now_ms
        return now_ms - self._slow_since[1] < self._job.options.timeout_ms

    def _query_to_end(self) -> JobResult:
        """Run a query to its end."""
        plans = self._plans = EpochPlans(
            self._staged, self._replies, self._writer.manifest, aggregates=can_aggregate_before(self._checked)
        )
        checkpoint = self._spark_checkpoint()
        driver = EpochDriver(self._driver_setup(checkpoint))

        def work(batch: DataFrame, batch_id: int) -> None:
            if self._must_begin:
                self._begin(driver)
            rows = plans.on(batch, query.execution_of_batch(batch))
            driver.work(rows, plans.assignments, batch_id)

        query = EpochQuery(work)
        gauge = LagGauge(
            self._job.asset,
            partial(self._lag, query, checkpoint),
            self._hooks.on_lag,
            self._job.options.lag_interval_ms,
        )
        try:
            if (steps := self._writer.changed_pipeline) is not None:
                query.start_if_idle(partial(self._restart_steps, driver, steps))
                self._await_idle(query)
            if self._must_begin and driver.knows_ends:
                query.start_if_idle(partial(self._begin, driver))
                self._await_idle(query)
            query.start(self._stream_writer(checkpoint))
            self._pulse.sign()
            gauge.begin()
            ending, reason = self._wait(query, driver)
            if self._must_begin and ending is Ending.INPUT_DONE:
                query.start_if_idle(partial(self._begin, driver))
                self._await_idle(query)
            query.run_if_idle(partial(self._commit_initial_positions, driver))
            if ending is Ending.INPUT_DONE:
                ending, reason = self._emit_remaining(query, driver) or (ending, reason)
            gauge.measure()
        except AnalysisException as error:
            raise cannot_run(self._job.asset, error) from error
        finally:
            if not query.close(self._job.options.drain_ms / 1000):
                driver.abort("the run was interrupted")
                query.close(_CANCEL_S_MAX)
            gauge.end()
            query.stop()
            checkpoint.remove()
        query.raise_failure()
        return JobResult(ending, self._writer.manifest, reason)

    def _lag(self, query: EpochQuery, checkpoint: SparkCheckpoint) -> Lag:
        return self._source_lags.measure(query.view(), self._writer.manifest, checkpoint.files_after)

    def _wait(self, query: EpochQuery, driver: EpochDriver) -> tuple[Ending, str | None]:
        """Wait until the query has ended or must end; no epoch is in progress then."""
        while not query.wait(_TICK_S):
            query.run_if_idle(partial(self._between_epochs, query, driver))
            if self._must_begin and driver.knows_ends:
                query.start_if_idle(partial(self._begin, driver))
            self._emit_if_due(query, driver)
            self._hooks.on_idle()
            end = self._reason_to_end()
            if end is not None:
                while not query.close(_TICK_S):
                    self._hooks.on_idle()
                query.raise_failure()
                return end
        query.raise_failure()
        if self._job.options.mode is Mode.CONTINUOUS or not query.found_no_more():
            raise CheckpointDeclinedError(
                f"the query that runs the stream was stopped from outside. asset={self._job.asset}"
            )
        return Ending.INPUT_DONE, None

    def _between_epochs(self, query: EpochQuery, driver: EpochDriver) -> None:
        """Between epochs: sign of life, as long as the store and Spark answer."""
        self._takeover_watch.look(self._writer)
        self._commit_initial_positions(driver)
        now_ms = self._clock.monotonic_ms()
        # Rows may have come during an epoch: an input is known to be idle only when Spark has looked again.
        if (
            self._coordinator.should_checkpoint(now_ms, intervals=2)
            and self._coordinator.quiet_ms(now_ms) >= _PLANNING_MS_MAX
        ):
            driver.advance_past_idle_inputs()
        query.ping()
        self._pulse.sign()

    def _emit_if_due(self, query: EpochQuery, driver: EpochDriver) -> None:
        """Where no batch came to do it, emit what the watermark has made due, by an epoch without input."""
        if driver.is_due and self._coordinator.should_checkpoint(self._clock.monotonic_ms()):
            query.start_if_idle(partial(self._emit_due, driver))

    def _emit_remaining(self, query: EpochQuery, driver: EpochDriver) -> tuple[Ending, str | None] | None:
        """Emit what the last rows' watermark has made due; with `on_end="flush"`, everything that waits.

        Returns the ending where there is a reason to end before all is emitted: the next run emits the rest.
        """
        if self._job.stream.flushes and self._job.options.flushes:
            query.run_if_idle(driver.commit_end_of_input)
        while driver.is_due:
            end = self._reason_to_end()
            if end is not None:
                return end
            query.start_if_idle(partial(self._emit_due, driver))
            self._await_idle(query)
        return None

    def _await_idle(self, query: EpochQuery) -> None:
        """Wait for the epoch in progress; raises its failure."""
        while not query.is_idle(_TICK_S):
            self._hooks.on_idle()
        query.raise_failure()

    def _restart_steps(self, driver: EpochDriver, steps: Pipeline) -> None:
        """Make the epoch in which changed steps begin with the tables of those before them."""
        change = StepChange.between(self._writer.manifest.pipeline, steps)
        stages = [replace(stage, setup=replace(stage.setup, changed=steps)) for stage in self._plans.stages]
        frame = shard_replies_of_own_epoch(self._session, stages, self._replies, change.kept)
        driver.restart_steps(frame, self._plans.assignments, change)

    @property
    def _must_begin(self) -> bool:
        """Whether the stream begins with rows of tables, and has not yet."""
        return bool(self._checked.sources_after_tables) and self._writer.manifest.epoch == EMPTY

    def _commit_initial_positions(self, driver: EpochDriver) -> None:
        """Commit the sources' initial positions, once known; those of a stream that begins with tables go with them."""
        if not self._must_begin:
            driver.commit_initial_positions()

    def _begin(self, driver: EpochDriver) -> None:
        """Make the first epoch of the rows that the stream begins with."""
        stages = on_initial(self._plans.stages, initial_rows(self._checked))
        frame = shard_replies(stages, self._replies)
        tables = self._checked.describe_tables(self._checked.sources_after_tables)
        driver.begin(frame, self._plans.assignments, tables)

    def _emit_due(self, driver: EpochDriver) -> None:
        replies = shard_replies_of_own_epoch(self._session, self._plans.stages, self._replies)
        driver.emit_due(replies, self._plans.assignments)

    def _reason_to_end(self) -> tuple[Ending, str | None] | None:
        return self._end.reason(self._writer.manifest.epoch)

    def _back_off(self) -> JobResult | None:
        """Wait before the next try; returns the result where there is a reason to end instead."""
        end = self._end.pause(max(1, self._coordinator.failures_in_a_row), self._reason_to_end)
        return None if end is None else JobResult(end[0], self._writer.manifest, end[1])

    def _spark_checkpoint(self) -> SparkCheckpoint:
        manifest, session = self._writer.manifest, self._job.stream.frame.sparkSession
        positions = positions_by_source(self._checked.sources, manifest)
        store = with_ancestors(self._writer.store, self._root, manifest.ancestors)
        lists = IndexedLists(store, FILES_SEEN, self._clock)
        files = {
            index: spelled_now(
                self._job.asset, lists.columns(position.files, FILE_SEEN), position.moved, source, session
            )
            for index, (source, position) in enumerate(zip(self._checked.sources, positions, strict=True))
            if source.reads_files
        }
        return build_checkpoint(
            self._checked.sources, positions, files, manifest.batch_id, conf_of(session), self._clock.unique()
        )

    def _driver_setup(self, checkpoint: SparkCheckpoint) -> DriverSetup:
        return DriverSetup(
            asset=self._job.asset,
            writer=self._writer,
            coordinator=self._coordinator,
            checkpoint=checkpoint,
            checked=self._topics.checked,
            sources=self._checked.sources,
            replies=self._replies,
            watermarks=Watermarks([_watermark_of(stream) for stream in self._job.stream.sources], self._clock),
            horizon_us=self._checked.dataflow.horizon_us,
            on_commit=self._committed,
            pulse=self._pulse,
            clock=self._clock,
            files=self._files,
            functions=self._checked.functions,
        )

    def _committed(self, epoch: CommittedEpoch) -> None:
        self._plans.saw(epoch.manifest)
        if (rows := epoch.counters.get(NULL_ROWS, 0)) and not self._warned_of_nulls:
            self._warned_of_nulls = True
            _LOG.warning(_NULLS, rows, epoch.manifest.epoch, self._job.asset)
        self._hooks.on_commit(epoch)
        self._upstreams.committed(epoch.manifest)
        self._topics.committed(epoch.manifest)

    @property
    def _session(self) -> SparkSession:
        return self._job.stream.frame.sparkSession

    def _staged(self, shuffled: Shuffled) -> tuple[Stage, ...]:
        shards = self._writer.manifest.shards
        tasks_max = self._job.options.tasks_max or task_slots(self._session)
        keyed, unkeyed = ShardAssignment.keyed(shards, tasks_max), ShardAssignment.unkeyed(shards)

        def assignment(number: int) -> ShardAssignment:
            if number == 0 and shuffled is Shuffled.FEW_GROUPS:
                return ShardAssignment.keyed(shards, 1)
            return keyed if self._checked.dataflow.operators[number].pipeline.shuffles else unkeyed

        def setup(number: int, step: Stream) -> TaskSetup:
            return TaskSetup(
                address=self._job.address,
                folder=self._job.folder,
                assignment=assignment(number),
                event_times=event_times_of(step),
                engine=self._job.options.engine,
                code=step.code,
                step=number,
                partial=number == 0 and shuffled is not Shuffled.ROWS,
                package=None if is_local(self._session) else archive_of(self._session.sparkContext),
            )

        return stages_of(self._checked, setup)

    def _stream_writer(self, checkpoint: SparkCheckpoint) -> DataStreamWriter:
        options, steps = self._job.options, [operator.pipeline for operator in self._checked.dataflow.operators]
        session = self._session
        chunk_bytes = MemoryBudget(options.engine.memory_limit_bytes).chunk_bytes
        inputs = [source.schema for step in steps for source in step.inputs]
        keys = [step.inputs[0].schema.field(key).type for step in steps for key in step.keys]
        limit_batches(session, inputs, keys, chunk_bytes)
        plan_wide_rows(session, inputs)
        writer = (
            rows_of_sources(self._plans.stages)
            .writeStream.queryName(self._job.asset)
            .option("checkpointLocation", checkpoint.location)
        )
        interval_ms = self._coordinator.interval_ms
        if interval_ms is None:
            return writer.trigger(availableNow=True)
        return writer.trigger(processingTime=f"{interval_ms} milliseconds")


def _watermark_of(stream: Stream) -> InputWatermark:
    event_time = stream.event_time
    if event_time is None:
        return InputWatermark()
    return InputWatermark(event_time.delay_ms * 1000, event_time.idle_after_ms)
