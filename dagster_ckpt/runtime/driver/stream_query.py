"""One query of a stream: from the newest manifest on, until it ends or must end."""

from collections.abc import Callable
from functools import partial

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame

from dagster_ckpt.errors import CheckpointDeclinedError
from dagster_ckpt.ids import EMPTY
from dagster_ckpt.protocol.manifest.manifest import Pipeline
from dagster_ckpt.protocol.transitions.step_changes import StepChange
from dagster_ckpt.runtime.declared.stream import Stream
from dagster_ckpt.runtime.driver.open_stream import OpenStream
from dagster_ckpt.runtime.driver.source_loop import SourceLoop
from dagster_ckpt.runtime.driver.stream_checks import (
    can_aggregate_before,
    can_group_where_read,
    cannot_run,
    event_time_columns,
)
from dagster_ckpt.runtime.driver.stream_job import Ending, JobResult
from dagster_ckpt.runtime.driver.streaming_query import EpochQuery
from dagster_ckpt.runtime.lag.lag import Lag, LagGauge
from dagster_ckpt.runtime.micro_batch.batch_pieces import pieces_to_read
from dagster_ckpt.runtime.micro_batch.epoch_driver import CommittedEpoch, DriverSetup, EpochDriver
from dagster_ckpt.runtime.micro_batch.epoch_plans import EpochPlans
from dagster_ckpt.runtime.micro_batch.source_offsets import SourceOffsets
from dagster_ckpt.runtime.micro_batch.watermarks import InputWatermark, Watermarks
from dagster_ckpt.runtime.run_mode import Mode

_TICK_S = 0.2
_CANCEL_S_MAX = 10.0
_PLANNING_MS_MAX = 2_000
"""How long Spark may take to list new input and plan a batch, before an input counts as idle."""


class StreamQuery:
    """A query and what makes its epochs. Use it once."""

    def __init__(self, opened: OpenStream) -> None:
        self._open = opened
        self._job, self._terms, self._coordinator = opened.job, opened.terms, opened.coordinator
        self._hooks = opened.terms.run.hooks
        self._by_arrow = opened.by_arrow
        self._plans = EpochPlans(
            opened.stages,
            opened.replies,
            opened.terms.manifest,
            aggregates=can_aggregate_before(opened.checked),
            scans=[each.scan for each in opened.by_arrow.inputs],
            groups_where_read=can_group_where_read(opened.checked),
        )
        self._checkpoint = opened.build_checkpoint()
        self._driver = EpochDriver(self._driver_setup())
        self._query: EpochQuery | SourceLoop = self._source_loop() if self._asks_sources else EpochQuery(self._work)
        self._gauge = LagGauge(self._job.asset, self._lag, self._hooks.on_lag, self._job.options.lag_interval_ms)

    def to_end(self) -> JobResult:
        """Run the query to its end. Raises what ended it otherwise."""
        query, driver = self._query, self._driver
        try:
            if (steps := self._terms.writer.changed_pipeline) is not None:
                self._start_and_await(partial(self._restart_steps, steps))
            if self._must_begin and driver.knows_ends:
                self._start_and_await(self._begin)
            self._start()
            self._terms.run.pulse.sign()
            self._gauge.begin()
            result = self._wait()
            if self._must_begin and result.ending is Ending.INPUT_DONE:
                self._start_and_await(self._begin)
            query.run_if_idle(self._commit_initial_positions)
            if result.ending is Ending.INPUT_DONE:
                result = self._emit_remaining() or result
            self._gauge.measure()
        except AnalysisException as error:
            raise cannot_run(self._job.asset, error) from error
        finally:
            if not query.close(self._job.options.drain_ms / 1000):
                driver.abort("the run was interrupted")
                query.close(_CANCEL_S_MAX)
            self._gauge.end()
            query.stop()
            self._checkpoint.remove()
        query.raise_failure()
        return JobResult(result.ending, self._terms.manifest, result.reason)

    @property
    def _asks_sources(self) -> bool:
        """Whether Spark's streaming query is not needed, since Arrow reads all sources."""
        return bool(self._by_arrow.inputs)

    def _source_loop(self) -> SourceLoop:
        opened = self._open
        # A watermark would move between two parts of what would be one micro-batch.
        limited = not any(any(event_time_columns(step)) for step in opened.checked.stream.steps)
        sources = SourceOffsets(opened.session, opened.by_arrow.inputs, self._checkpoint, limited=limited)
        interval_ms, clock = self._coordinator.interval_ms, opened.terms.run.clock
        return SourceLoop(opened.session, sources, self._work_by_arrow, interval_ms, clock)

    def _start(self) -> None:
        self._open.settle()
        if isinstance(self._query, SourceLoop):
            self._query.start()
        else:
            self._query.start(self._open.stream_writer(self._plans.stages, self._checkpoint.location))

    def _work(self, batch: DataFrame, batch_id: int) -> None:
        """Make an epoch of a micro-batch of Spark's query."""
        if self._must_begin:
            self._begin()
        assert isinstance(self._query, EpochQuery), "the query hands it over"
        rows = self._plans.on(batch, self._query.execution_of_batch(batch))
        self._driver.work(rows, self._plans.assignments, batch_id)

    def _work_by_arrow(self, batch_id: int) -> None:
        """Make an epoch of a micro-batch that Arrow reads. Raises `LeftToSparkError` where Spark has to read it."""
        if self._must_begin:
            self._begin()
        pieces = pieces_to_read(self._by_arrow.inputs, self._checkpoint, batch_id)
        work = self._plans.on_pieces(self._open.session, pieces)
        self._driver.work(work, self._plans.assignments, batch_id)

    def _lag(self) -> Lag:
        return self._open.lags.measure(self._query.view(), self._terms.manifest, self._checkpoint.files_after)

    def _wait(self) -> JobResult:
        """Wait until the query has ended or must end; no epoch is in progress then."""
        query = self._query
        while not query.wait(_TICK_S):
            query.run_if_idle(self._between_epochs)
            if self._must_begin and self._driver.knows_ends:
                query.start_if_idle(self._begin)
            # Where no batch came to do it, an epoch without input emits what the watermark has made due.
            if self._driver.is_due and self._coordinator.should_checkpoint(self._terms.run.clock.monotonic_ms()):
                query.start_if_idle(self._emit_due)
            self._hooks.on_idle()
            end = self._terms.reason_to_end()
            if end is not None:
                while not query.close(_TICK_S):
                    self._hooks.on_idle()
                query.raise_failure()
                return end
        query.raise_failure()
        if self._job.options.mode is Mode.CONTINUOUS or not query.is_at_end_of_input():
            raise CheckpointDeclinedError(
                f"the query that runs the stream was stopped from outside. asset={self._job.asset}"
            )
        return JobResult(Ending.INPUT_DONE, self._terms.manifest)

    def _between_epochs(self) -> None:
        """Between epochs: sign of life, as long as the store and Spark answer."""
        self._terms.look_for_takeover()
        self._commit_initial_positions()
        now_ms = self._terms.run.clock.monotonic_ms()
        # Rows may have come during an epoch: an input is known to be idle only when Spark has looked again.
        if (
            self._coordinator.should_checkpoint(now_ms, intervals=2)
            and self._coordinator.quiet_ms(now_ms) >= _PLANNING_MS_MAX
        ):
            self._driver.advance_past_idle_inputs()
        self._query.ping()
        self._terms.run.pulse.sign()

    def _emit_remaining(self) -> JobResult | None:
        """Emit what the last rows' watermark has made due; with `on_end="flush"`, everything that waits.

        Returns the result where there is a reason to end before all is emitted: the next run emits the rest.
        """
        if self._job.stream.flushes and self._job.options.flushes:
            self._query.run_if_idle(self._driver.commit_end_of_input)
        while self._driver.is_due:
            end = self._terms.reason_to_end()
            if end is not None:
                return end
            self._start_and_await(self._emit_due)
        return None

    def _start_and_await(self, act: Callable[[], None]) -> None:
        """Make an epoch beside the query's batches, and wait for it; raises its failure."""
        self._query.start_if_idle(act)
        while not self._query.is_idle(_TICK_S):
            self._hooks.on_idle()
        self._query.raise_failure()

    @property
    def _must_begin(self) -> bool:
        """Whether the stream begins with rows of tables, and has not yet."""
        return bool(self._open.checked.sources_after_tables) and self._terms.manifest.epoch == EMPTY

    def _commit_initial_positions(self) -> None:
        """Commit the sources' initial positions, once known; those of a stream that begins with tables go with them."""
        if not self._must_begin:
            self._driver.commit_initial_positions()

    def _begin(self) -> None:
        """Make the first epoch of the rows that the stream begins with."""
        checked, plans = self._open.checked, self._plans
        tables = checked.describe_tables(checked.sources_after_tables)
        self._driver.begin(self._open.first_epoch(plans.stages), plans.assignments, tables)

    def _restart_steps(self, steps: Pipeline) -> None:
        """Make the epoch in which changed steps begin with the tables of those before them."""
        change = StepChange.between(self._terms.manifest.pipeline, steps)
        frame = self._open.first_epoch_of_steps(self._plans.stages, steps, change)
        self._driver.restart_steps(frame, self._plans.assignments, change)

    def _emit_due(self) -> None:
        self._driver.emit_due(self._open.epoch_without_input(self._plans.stages), self._plans.assignments)

    def _driver_setup(self) -> DriverSetup:
        opened, run = self._open, self._terms.run
        return DriverSetup(
            asset=self._job.asset,
            writer=self._terms.writer,
            coordinator=self._coordinator,
            checkpoint=self._checkpoint,
            checked=opened.topics.check_positions,
            sources=opened.checked.sources,
            replies=opened.replies,
            watermarks=Watermarks([_input_watermark(stream) for stream in self._job.stream.sources], run.clock),
            horizon_us=opened.checked.dataflow.horizon_us,
            on_commit=self._after_commit,
            pulse=run.pulse,
            clock=run.clock,
            files=opened.files,
            functions=opened.checked.functions,
        )

    def _after_commit(self, epoch: CommittedEpoch) -> None:
        self._plans.adapt_to(epoch.manifest)
        self._open.nulls.warn_once(epoch)
        self._hooks.on_commit(epoch)
        self._open.upstreams.on_commit(epoch.manifest)
        self._open.topics.on_commit(epoch.manifest)


def _input_watermark(stream: Stream) -> InputWatermark:
    event_time = stream.event_time
    if event_time is None:
        return InputWatermark()
    return InputWatermark(event_time.delay_ms * 1000, event_time.idle_after_ms)
