"""One step of a Dagster run: one stream opened, run and closed. It translates between Dagster and the runtime."""

import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, cast

import dagster as dg

from dagster_ckpt.clock import SystemClock
from dagster_ckpt.errors import FencedError, IncompatibleStateError, InvalidPipelineError, OutsideCodeError
from dagster_ckpt.integration.dagster_names import TURN_TAG, UNFIT_TAG, rebuild_request, stream_name_of, unfit
from dagster_ckpt.integration.declared.ordinary_inputs import versions_of_inputs
from dagster_ckpt.integration.declared.resources import LsmStateBackendResource
from dagster_ckpt.integration.declared.run_config import op_config, read_choice
from dagster_ckpt.integration.declared.streaming_function import StreamingFunction
from dagster_ckpt.integration.events.rebuild_report import RebuildReport
from dagster_ckpt.integration.events.step_events import Event
from dagster_ckpt.integration.recovery.dagster_runs import instance_id, may_fence_tag, tag_run
from dagster_ckpt.integration.recovery.decision import STARTING_MS_MAX
from dagster_ckpt.integration.recovery.sensor_check import evaluation_of, sensor_check
from dagster_ckpt.integration.recovery.start_heartbeat import beating_until_open
from dagster_ckpt.integration.step.already_live import Beside, LiveRun, live_run, result_beside
from dagster_ckpt.integration.step.lost_epochs import refuse_empty_store
from dagster_ckpt.integration.step.parent_watch import die_with_parent, end_with_dagster_dev
from dagster_ckpt.integration.step.reported_run import run_workload
from dagster_ckpt.integration.step.run_watch import RunWatch, Stop, goes_on
from dagster_ckpt.integration.step.stream_step import StreamStep
from dagster_ckpt.integration.step.turns import mode_of_run, run_mutex, streams_in_run, works_in_a_child
from dagster_ckpt.integration.step.workload import stream_job, user_stream, workload_of
from dagster_ckpt.protocol.manifest.manifest import Owner
from dagster_ckpt.runtime.driver.rebuild import RebuildHooks, rebuild
from dagster_ckpt.storage.leases.liveness import Pulse
from dagster_ckpt.storage.stores.folder import folder_store


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
        refuse_empty_store(store, step.context.instance, step.key, step.place.uri)
    folder = folder_store(store, step.folder)
    lease_timeout_ms = step.streaming.options.recovery.lease_timeout_ms
    opened = threading.Event()
    try:
        pulse = Pulse(step.clock, STARTING_MS_MAX)
        with beating_until_open(folder, step.holder, lease_timeout_ms, step.clock, pulse) as end_beat:

            def on_open() -> None:
                opened.set()
                end_beat()

            if step.choice.rebuild:
                _rebuild(step, config, resources, pulse)
                pulse.sign()
            return run_workload(step, workload_of(step, config, resources), inputs, on_open)
    except FencedError:
        # Another run may have opened the stream while Spark started here.
        live = None if opened.is_set() else _live_run(step)
        if live is None:
            raise
        return _left_to(live, step)


def _live_run(step: StreamStep) -> LiveRun | None:
    """The live run that this one leaves the stream to; None where this one must open it, or be refused."""
    run, choice = step.context.run, step.choice
    if choice.rebuild or (choice.take_over and step.is_first_try):
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
    return result_beside(step.context.instance, step.key, step.stream_name, live, step.table)


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
    job = stream_job(step, user_stream(step, config, resources))
    request, pace = rebuild_request(run), step.choice.rebuild_pace
    make, version = partial(user_stream, step, config, resources), step.code_version or ""
    if not rebuild(job, make, request, pace, hooks, step.clock, version):
        raise dg.DagsterExecutionInterruptedError
