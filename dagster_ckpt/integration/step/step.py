"""One step of a Dagster run: one stream opened, run and closed. It translates between Dagster and the runtime."""

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import dagster as dg
from pyspark.sql import SparkSession

from dagster_ckpt.clock import Clock, SystemClock
from dagster_ckpt.errors import (
    CorruptStateError,
    FencedError,
    IncompatibleStateError,
    InvalidPipelineError,
    OutsideCodeError,
    StoreUnavailableError,
    naming,
)
from dagster_ckpt.ids import EMPTY, Epoch, Term
from dagster_ckpt.integration.dagster_names import (
    CODE_VERSION_TAG,
    DRAIN_TAG,
    NO_DRAIN,
    NO_VERSION,
    STREAM_TAG,
    TURN_TAG,
    UNFIT_TAG,
    rebuild_request,
    stream_name_of,
    unfit,
)
from dagster_ckpt.integration.declared.ordinary_inputs import read_inputs, versions_of_inputs
from dagster_ckpt.integration.declared.resources import (
    CheckpointCoordinatorResource,
    LsmStateBackendResource,
    spark_session,
)
from dagster_ckpt.integration.declared.run_config import RunChoice, op_config, read_choice
from dagster_ckpt.integration.declared.stream_options import StreamOptions
from dagster_ckpt.integration.declared.streaming_function import StreamingFunction
from dagster_ckpt.integration.declared.upstream_assets import read_upstreams
from dagster_ckpt.integration.reading.late_rows_asset import LateRows, late_rows_reported
from dagster_ckpt.integration.recovery import crash_loop_check, live_check
from dagster_ckpt.integration.recovery.dagster_runs import instance_id, location_of, may_fence_tag, tag_run
from dagster_ckpt.integration.recovery.decision import STARTING_MS_MAX
from dagster_ckpt.integration.recovery.live_check import LiveState, facts_of_writer
from dagster_ckpt.integration.recovery.sensor_check import evaluation_of, sensor_check
from dagster_ckpt.integration.recovery.start_heartbeat import beating_until_open
from dagster_ckpt.integration.recovery.stream_status import StreamStatus, read_status
from dagster_ckpt.integration.step import awaited_input, outdated_changes, restored_store
from dagster_ckpt.integration.step.already_live import Beside, LiveRun, live_run, result_beside
from dagster_ckpt.integration.step.empty_store import refuse_empty_store
from dagster_ckpt.integration.step.epoch_metadata import Metadata
from dagster_ckpt.integration.step.event_totals import Reported, reported
from dagster_ckpt.integration.step.outdated_changes import OutdatedWatch
from dagster_ckpt.integration.step.parent_watch import die_with_parent, end_with_dagster_dev
from dagster_ckpt.integration.step.rebuild_report import RebuildReport
from dagster_ckpt.integration.step.recoveries import Recoveries
from dagster_ckpt.integration.step.run_mutex import run_mutex
from dagster_ckpt.integration.step.run_watch import RunWatch, Stop, goes_on
from dagster_ckpt.integration.step.selection import mode_of_run, streams_in_run, works_in_a_child
from dagster_ckpt.integration.step.step_events import EpochEvents, Event, EventLog, final_result, refresh_ms_of
from dagster_ckpt.integration.step.table_metadata import TableMetadata, descriptions_of
from dagster_ckpt.integration.step.workload import Workload, delivery_work, place_of
from dagster_ckpt.protocol.lease import LeaseHolder
from dagster_ckpt.protocol.manifest.manifest import Manifest, Owner, Pipeline
from dagster_ckpt.protocol.object_names import folder_of
from dagster_ckpt.runtime.declared.column_origins import work_of_inputs
from dagster_ckpt.runtime.declared.primary_key import with_primary_key
from dagster_ckpt.runtime.declared.stream import Stream
from dagster_ckpt.runtime.driver.epoch_driver import CommittedEpoch
from dagster_ckpt.runtime.driver.rebuild import RebuildHooks, rebuild
from dagster_ckpt.runtime.driver.spark_errors import missing_input_named
from dagster_ckpt.runtime.driver.stream_job import JobHooks, JobOptions, StreamJob
from dagster_ckpt.runtime.driver.stream_run import run_stream
from dagster_ckpt.runtime.plans.returned import stream_returned
from dagster_ckpt.runtime.run_mode import Mode
from dagster_ckpt.runtime.spark.redacted_errors import secrets_left_out
from dagster_ckpt.runtime.spark.session import open_session, own_interrupts
from dagster_ckpt.runtime.spark.task_slots import task_slots
from dagster_ckpt.runtime.task.worker_engine import CacheOptions, EngineOptions
from dagster_ckpt.runtime.upstreams.downstream import Downstream
from dagster_ckpt.storage.chain.manifest_chain import ManifestChain
from dagster_ckpt.storage.holders.upstream_log import OPEN_WAIT_MS
from dagster_ckpt.storage.leases.liveness import Pulse
from dagster_ckpt.storage.leases.process_identity import this_process
from dagster_ckpt.storage.stores.folder import folder_store
from dagster_ckpt.storage.writer.opening import Opening, Takeover

_LAG_MS_MIN, _LAG_MS_MAX = 500, 30_000
"""How often the lag is measured: for each event, but a folder is not listed all the time."""


@dataclass(frozen=True)
class StreamStep:
    """The inputs of a step."""

    context: dg.AssetExecutionContext
    streaming: StreamingFunction
    coordinator: CheckpointCoordinatorResource
    state: LsmStateBackendResource
    choice: RunChoice
    mode: Mode
    clock: Clock

    @property
    def key(self) -> dg.AssetKey:
        """The asset's current key in Dagster, with its prefixes: it names the stream."""
        key: dg.AssetKey = self.context.asset_key
        return key

    @property
    def stream_name(self) -> str:
        return stream_name_of(self.key)

    @property
    def code_version(self) -> str | None:
        version: str | None = self.context.assets_def.get_asset_spec(self.key).code_version
        return version

    @property
    def freshness_policy(self) -> dg.FreshnessPolicy | None:
        policy: dg.FreshnessPolicy | None = self.context.assets_def.get_asset_spec(self.key).freshness_policy
        return policy

    @property
    def chain(self) -> ManifestChain:
        """The stream's manifests."""
        return ManifestChain(folder_store(self.coordinator.address.open(), folder_of(self.key.path)), self.clock)

    def read_status(self) -> StreamStatus:
        """The stream's status in the store now."""
        return read_status(self.coordinator.address.open(), self.key, self.clock, None)

    def log_event(self, event: Event) -> None:
        """Log it as an event of this Dagster run."""
        # `log_event` accepts check evaluations too, although its annotation does not.
        cast(Callable[[Event], None], self.context.log_event)(event)
        if isinstance(event, dg.AssetCheckEvaluation) and event.check_name == crash_loop_check.CHECK:
            self.show_pass(event)

    def show_pass(self, passed: dg.AssetCheckEvaluation) -> None:
        """Make Dagster show that this run passes the check `no_crash_loop`, whatever the sensor has reported before."""
        crash_loop_check.show_pass(self.context.instance, self.context.run.run_id, passed)

    def reported(self) -> Reported | None:
        """What Dagster's events have reported of the stream."""
        return reported(self.context.instance, self.key)

    def late_rows_reported(self, late: LateRows) -> int:
        """How many late rows Dagster's events have reported."""
        return late_rows_reported(self.context.instance, late)

    def may_report(self, manifest: Manifest) -> bool:
        """Whether no other Dagster run has opened the stream since this one committed that manifest.

        A term whose writer has not written its lease yet belongs to another, unless it is the manifest's term.
        """
        status = self.read_status()
        same_term = status.newest is not None and status.newest.term == manifest.term
        return same_term or status.dagster_run_id == self.context.run.run_id


def run_step(
    context: dg.AssetExecutionContext,
    streaming: StreamingFunction,
    config: dg.Config | None,
    resources: Mapping[str, Any],
) -> dg.MaterializeResult[Any]:
    """Run the stream until its input is done, its time is up or it is asked to stop; the result is the newest epoch.

    Raises what ended it otherwise. Dagster's interruption drains: the current epoch is committed or abandoned first.
    """
    recovery = sensor_check(context)
    if not recovery.passed:
        context.log.warning("%s stream=%s", recovery.description, stream_name_of(context.asset_key))
    # Now: the result may be hours away, and until then Dagster would show the check as in progress.
    cast(Callable[[Event], None], context.log_event)(evaluation_of(recovery))
    result = _run_in_turn(context, streaming, config, resources)
    return result._replace(check_results=[*(result.check_results or ()), recovery])


def _run_in_turn(
    context: dg.AssetExecutionContext,
    streaming: StreamingFunction,
    config: dg.Config | None,
    resources: Mapping[str, Any],
) -> dg.MaterializeResult[Any]:
    op_name = context.op_execution_context.op.name
    streams = streams_in_run(context)
    try:
        choice = read_choice(op_config(context.run.run_config, op_name))
        mode = mode_of_run(choice.mode, streaming.options.mode, streams)
        step = StreamStep(
            context,
            streaming,
            resources["checkpoints"],
            resources.get("state", LsmStateBackendResource()),
            choice,
            mode,
            SystemClock(),
        )
        end_with_dagster_dev(step.clock)
        if not works_in_a_child(context):
            return _run(step, config, resources)
        die_with_parent()
        if len(streams) < 2:
            return _run(step, config, resources)
        with run_mutex(context.run.run_id, step.clock):
            tag_run(context.instance, context.run.run_id, {TURN_TAG: op_name})
            return _run(step, config, resources)
    except OutsideCodeError:
        raise
    except (InvalidPipelineError, IncompatibleStateError):
        # A restart cannot fix it: the sensor does not relaunch it.
        run_id = context.run.run_id
        tag_run(context.instance, run_id, {UNFIT_TAG: unfit(run_id, stream_name_of(context.asset_key))})
        raise


def _run(step: StreamStep, config: dg.Config | None, resources: Mapping[str, Any]) -> dg.MaterializeResult[Any]:
    # First: what Dagster has loaded is a moment old, and what follows takes seconds.
    inputs = versions_of_inputs(step.context, step.streaming.parameters)
    live = _live_run(step)  # before Spark starts
    if live is not None:
        return _left_to(live, step)
    store = step.coordinator.address.open()
    if step.choice.from_epoch is None:
        refuse_empty_store(store, step.context.instance, step.key, place_of(step, step.streaming.delivery).uri)
    folder = folder_store(store, folder_of(step.key.path))
    lease_timeout_ms = step.streaming.options.recovery.lease_timeout_ms
    opened = threading.Event()
    try:
        pulse = Pulse(step.clock, STARTING_MS_MAX)
        with beating_until_open(folder, _holder(step), lease_timeout_ms, step.clock, pulse) as end_beat:

            def on_open() -> None:
                opened.set()
                end_beat()

            if step.choice.rebuild:
                _rebuild(step, config, resources, pulse)
                pulse.sign()
            return _work(step, _workload(step, config, resources), inputs, on_open)
    except FencedError:
        # Another run may have opened the stream while Spark started here.
        live = None if opened.is_set() else _live_run(step)
        if live is None:
            raise
        return _left_to(live, step)


def _live_run(step: StreamStep) -> LiveRun | None:
    """The live run that this one leaves the stream to; None where this one must open it, or be refused."""
    run, choice = step.context.run, step.choice
    if choice.rebuild or (choice.take_over and _is_first_try(step)):
        return None
    instance = step.context.instance
    owner = Owner(instance_id(instance), step.stream_name)
    beside = Beside(run.run_id, owner, may_fence_tag(run), step.streaming.options.recovery.lease_timeout_ms)
    root_run = None if choice.from_epoch is None else run.root_run_id or run.run_id
    return live_run(
        step.read_status, beside, root_run, lambda run_id: goes_on(instance.get_run_by_id(run_id)), step.clock
    )


def _left_to(live: LiveRun, step: StreamStep) -> dg.MaterializeResult[Any]:
    text = (
        "%s: this run has nothing to do. To replace the live one, terminate it first, or fence it (take_over in the "
        "run config). stream=%s"
    )
    step.context.log.info(text, live, step.stream_name)
    return result_beside(step.context.instance, step.key, step.stream_name, live, _table(step))


def _rebuild(step: StreamStep, config: dg.Config | None, resources: Mapping[str, Any], pulse: Pulse) -> None:
    """Rebuild the stream alongside the live one and switch over to it; a no-op if that is already done.

    Raises `DagsterExecutionInterruptedError` where Dagster canceled the run.
    """
    if step.streaming.delivery is not None:
        raise InvalidPipelineError(f"a delivery is not rebuilt: rebuild its stream. asset={step.stream_name}")
    run, watch = step.context.run, RunWatch(step.context.instance, step.context.run.run_id, step.clock)
    reported = RebuildReport(step.key, step.clock, step.context.log.info, step.log_event)

    def stop_reason() -> str | None:
        # It is asked to drain where newer code was deployed: what it does for the code it has comes first.
        stop = watch.stop_reason()
        return None if stop is Stop.DRAIN.value else stop

    hooks = RebuildHooks(stop_reason, pulse.sign, reported.progress)
    job = _job(step, _stream(step, config, resources))
    request, pace = rebuild_request(run), step.choice.rebuild_pace
    make, version = partial(_stream, step, config, resources), step.code_version or ""
    if not rebuild(job, make, request, pace, hooks, step.clock, version):
        raise dg.DagsterExecutionInterruptedError


def _table(step: StreamStep) -> TableMetadata:
    """What is known of the step's table before it is opened."""
    descriptions = descriptions_of(step.context.assets_def, step.key)
    return TableMetadata(place_of(step, step.streaming.delivery), descriptions=descriptions)


def _workload(step: StreamStep, config: dg.Config | None, resources: Mapping[str, Any]) -> Workload:
    """What the step runs: the user's stream, or a delivery."""
    delivery = step.streaming.delivery
    if delivery is not None:
        return delivery_work(step, delivery, _job_options(step), _opening(step))
    stream = _stream(step, config, resources)
    upstream_keys = _upstream_keys(step, stream)
    work = work_of_inputs(stream) if any(upstream_keys) else ()
    ignored = stream.all_ignored_watermarks
    metadata: Metadata = {"ignored_watermarks": dg.MetadataValue.text("; ".join(ignored))} if ignored else {}
    return Workload(partial(run_stream, _job(step, stream)), upstream_keys, work, metadata)


def _stream(
    step: StreamStep, config: dg.Config | None, resources: Mapping[str, Any], folder: str | None = None
) -> Stream:
    """What the user's function returns, made with a separate Spark session; `folder` is where it is kept.

    Without one that is the asset's own.
    """
    with own_interrupts():
        # A lazy resource starts Spark here, and Spark would take SIGINT, Dagster's way to end a run, for itself.
        started = spark_session(resources["spark"])
    spark = open_session(started)
    parameters = step.streaming.parameters
    with secrets_left_out(), naming(asset=step.stream_name), missing_input_named(step.stream_name):
        wait_ms = OPEN_WAIT_MS if step.mode is Mode.CONTINUOUS else 0
        upstreams = read_upstreams(
            parameters, step.context, spark, _downstream(step, spark, folder), wait_ms, step.clock
        )
        inputs = read_inputs(parameters, spark, resources)
        returned = step.streaming.function(
            **parameters.arguments(step.context, spark, config, resources, upstreams, inputs)
        )
        stream = stream_returned(step.stream_name, returned, spark, {**inputs, **upstreams})
        return with_primary_key(stream, step.streaming.options.primary_key)


def _downstream(step: StreamStep, spark: SparkSession, folder: str | None) -> Downstream:
    return Downstream(
        address=step.coordinator.address,
        folder=folder or folder_of(step.key.path),
        epochs_max=step.streaming.options.max_epochs_per_batch,
        tasks=_reading_tasks(step.streaming.options, spark),
    )


def _reading_tasks(options: StreamOptions, spark: SparkSession) -> int:
    """How many tasks read an upstream: those that work the shards, and where there are more cores now, one on each."""
    return options.tasks or max(spark.sparkContext.defaultParallelism, min(options.shards, task_slots(spark)))


def _observations_on_open(
    step: StreamStep, recoveries: Recoveries, manifest: Manifest
) -> Iterator[dg.AssetObservation]:
    """What there is to say of the stream, just opened at this manifest."""
    if (recovered := recoveries.observation(step.key, step.context.run)) is not None:
        yield recovered
    if (restored := restored_store.observation(step.key, step.reported(), manifest, step.chain)) is not None:
        step.context.log.warning(restored.description)
        yield restored
    if manifest.epoch == EMPTY:
        waits = awaited_input.observation(step.key, manifest.pipeline)
        step.context.log.info(waits.description)
        yield waits


def _work(
    step: StreamStep, workload: Workload, inputs: Metadata, on_open: Callable[[], None]
) -> dg.MaterializeResult[Any]:
    context = step.context
    table = replace(
        _table(step), upstreams=workload.upstream_keys, work=workload.work, inputs=inputs | workload.metadata
    )
    recoveries = Recoveries.of_stream(context.instance, step.stream_name, step.clock)
    event_log = EventLog(
        step.key,
        step.stream_name,
        step.code_version,
        step.log_event,
        step.may_report,
        step.reported,
        table,
        recoveries.metadata,
        step.late_rows_reported,
    )
    events = EpochEvents(
        event_log, step.coordinator.event_interval_ms, step.clock, refresh_ms_of(step.freshness_policy)
    )
    watch = RunWatch(context.instance, context.run.run_id, step.clock)
    if step.mode is Mode.CONTINUOUS:
        tag_run(context.instance, context.run.run_id, _tags_at_work(step))
    holder, began_s = _holder(step), step.clock.now_ms() / 1000
    changes = OutdatedWatch(step.key, outdated_changes.latest(context.instance, step.key), events.report, step.clock)

    def opened(manifest: Manifest) -> None:
        on_open()
        events.opened(manifest)
        facts = facts_of_writer(LiveState.LIVE, manifest, holder, began_s)
        events.report(manifest, live_check.evaluation(step.key, facts))
        changes.on_open(manifest)
        for observation in _observations_on_open(step, recoveries, manifest):
            events.report(manifest, observation)

    def committed(epoch: CommittedEpoch) -> None:
        events.committed(epoch)
        changes.on_commit(epoch)

    hooks = JobHooks(
        on_commit=committed,
        stop_reason=watch.stop_reason,
        on_idle=events.idle,
        on_open=opened,
        on_lag=events.measured,
        on_skipped=events.skips,
        on_changed_functions=events.changed,
    )
    try:
        result = workload.run(hooks, step.clock)
    except FencedError:
        raise  # the new writer reports to Dagster from here on
    except BaseException as error:
        events.flush()
        if watch.stop is Stop.CANCELED and isinstance(error, Exception):
            raise dg.DagsterExecutionInterruptedError from error
        raise
    if watch.stop is Stop.CANCELED:
        # Dagster's interruption was lost on its way here: end as it would have.
        events.flush()
        raise dg.DagsterExecutionInterruptedError
    events.finish()
    newest = _newest(step, result.manifest)
    step.show_pass(crash_loop_check.evaluation_passed(step.key, newest.epoch))
    ended = live_check.result(step.key, facts_of_writer(LiveState.ENDED, result.manifest, holder, began_s))
    shown = final_result(
        context.instance, step.key, step.stream_name, newest, events.work, table, events.lag_metadata(newest)
    )
    return shown._replace(
        metadata={**(shown.metadata or {}), **events.once, **recoveries.metadata()},
        check_results=[*(shown.check_results or ()), ended, changes.result],
    )


def _upstream_keys(step: StreamStep, stream: Stream) -> tuple[dg.AssetKey | None, ...]:
    """For each input of the stream the asset whose table it reads; None for a source, or a DataFrame of the user's."""
    keys = {stream_name_of(key): key for key in step.context.assets_def.keys_by_input_name.values()}
    return tuple(None if each.upstream is None else keys.get(each.upstream.name) for each in stream.sources)


def _newest(step: StreamStep, own: Manifest) -> Manifest:
    """The stream's newest epoch, even if another run has opened the stream since this one closed it.

    Otherwise Dagster would show this run's last epoch, which is outdated, as the newest.
    """
    try:
        newest = step.read_status().newest
    except StoreUnavailableError:
        return own  # it was the newest a moment ago, when the writer last checked
    return own if newest is None else newest


def _tags_at_work(step: StreamStep) -> dict[str, str]:
    """The sensor compares the code version with the deployed one, and asks a run of old code to drain.

    Dagster copies a run's tags to its retry: a drain request was not meant for the retry.
    """
    tags = {STREAM_TAG: step.stream_name, CODE_VERSION_TAG: step.code_version or NO_VERSION}
    inherited = step.context.run.parent_run_id is not None and DRAIN_TAG in step.context.run.tags
    return {**tags, DRAIN_TAG: NO_DRAIN} if inherited else tags


def _job(step: StreamStep, stream: Stream) -> StreamJob:
    return StreamJob(
        asset=step.stream_name,
        stream=stream,
        address=step.coordinator.address,
        folder=folder_of(step.key.path),
        opening=_opening(step),
        options=_job_options(step),
        moved=step.streaming.options.moved,
        renamed=step.streaming.options.renamed,
    )


def _job_options(step: StreamStep) -> JobOptions:
    options, coordinator = step.streaming.options, step.coordinator
    interval_ms = options.checkpoint_interval_ms
    cache_bytes = step.state.cache_limit_bytes
    return JobOptions(
        mode=step.mode,
        run_for_ms=(step.choice.run_for_ms or options.run_for_ms) if step.mode is Mode.CONTINUOUS else None,
        checkpoint_interval_ms=coordinator.checkpoint_interval_ms if interval_ms is None else interval_ms,
        timeout_ms=coordinator.timeout_ms,
        tolerable_failures=coordinator.tolerable_failures,
        grace_ms=coordinator.grace_ms,
        max_lag=coordinator.max_lag,
        lag_interval_ms=max(_LAG_MS_MIN, min(coordinator.event_interval_ms, _LAG_MS_MAX)),
        tasks_max=options.tasks,
        engine=EngineOptions(
            memory_limit_bytes=step.state.memory_limit_bytes,
            io_threads=step.state.io_threads,
            cache=CacheOptions(step.state.cache_dir, cache_bytes) if cache_bytes else None,
            timeout_ms=coordinator.timeout_ms,
        ),
    )


def _holder(step: StreamStep) -> LeaseHolder:
    return LeaseHolder(step.context.run.run_id, instance_id(step.context.instance), this_process())


def _opening(step: StreamStep) -> Callable[[Pipeline], Opening]:
    run, options, coordinator = step.context.run, step.streaming.options, step.coordinator
    instance = instance_id(step.context.instance)
    may_fence = _own_term(step) or may_fence_tag(run)
    take_over = Takeover.ALWAYS if step.choice.take_over and _is_first_try(step) else Takeover.NEVER

    def opening(pipeline: Pipeline) -> Opening:
        return Opening(
            stream=step.stream_name,
            owner=Owner(instance, step.stream_name, location_of(run)),
            pipeline=pipeline,
            shards=options.shards,
            holder=_holder(step),
            root_run=run.root_run_id or run.run_id,
            lease_timeout_ms=options.recovery.lease_timeout_ms,
            retained=coordinator.retained,
            take_over=take_over,
            may_fence=may_fence,
            from_epoch=None if step.choice.from_epoch is None else Epoch(step.choice.from_epoch),
            restart_steps=step.choice.restart_steps,
        )

    return opening


def _is_first_try(step: StreamStep) -> bool:
    """Whether neither the step nor its Dagster run is a retry: retries repeat the config, not the user's request.

    A run that opened the stream in between is the newer request, and the retry of an older one must not fence it.
    """
    run = step.context.run
    return step.context.op_execution_context.retry_number == 0 and run.root_run_id in {None, run.run_id}


def _own_term(step: StreamStep) -> Term | None:
    """The newest term, if this Dagster run began it: a step that Dagster retries need not wait for itself."""
    try:
        status = step.read_status()
    except CorruptStateError:
        return None  # opening reports it in detail, or rolls back over it
    return None if status.newest is None or status.dagster_run_id != step.context.run.run_id else status.newest.term
