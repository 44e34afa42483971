"""One step of a Dagster run: one stream opened, run and closed. It translates between Dagster and the runtime."""

import threading
from collections.abc import Callable, Mapping
from typing import Any, cast

import dagster as dg

from dagster_ckpt.errors import FencedError, IncompatibleStateError, InvalidPipelineError, OutsideCodeError
from dagster_ckpt.integration.dagster_names import TURN_TAG, UNFIT_TAG, stream_name_of, unfit
from dagster_ckpt.integration.declared.streaming_function import StreamingFunction
from dagster_ckpt.integration.events.step_events import Event
from dagster_ckpt.integration.recovery.dagster_runs import tag_run
from dagster_ckpt.integration.recovery.sensor_check import sensor_check, to_evaluation
from dagster_ckpt.integration.recovery.start_heartbeat import beating_until_open
from dagster_ckpt.integration.step.already_live import leave_to, live_run_beside
from dagster_ckpt.integration.step.lost_epochs import refuse_empty_store
from dagster_ckpt.integration.step.parent_watch import die_with_parent, end_with_dagster_dev
from dagster_ckpt.integration.step.reported_run import run_workload
from dagster_ckpt.integration.step.stream_rebuild import rebuild_stream
from dagster_ckpt.integration.step.stream_step import StreamStep
from dagster_ckpt.integration.step.turns import run_mutex, streams_in_run, works_in_a_child
from dagster_ckpt.integration.step.workload import choose_workload


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
    cast(Callable[[Event], None], context.log_event)(to_evaluation(recovery))
    result = _run_in_turn(context, streaming, config, resources)
    return result._replace(check_results=[*(result.check_results or ()), recovery])


def _run_in_turn(
    context: dg.AssetExecutionContext,
    streaming: StreamingFunction,
    config: dg.Config | None,
    resources: Mapping[str, Any],
) -> dg.MaterializeResult[Any]:
    try:
        step = StreamStep.of(context, streaming, config, resources)
        end_with_dagster_dev(step.clock)
        if not works_in_a_child(context):
            return _run(step)
        die_with_parent()
        if len(streams_in_run(context)) < 2:
            return _run(step)
        with run_mutex(context.run.run_id, step.clock):
            tag_run(context.instance, context.run.run_id, {TURN_TAG: context.op_execution_context.op.name})
            return _run(step)
    except OutsideCodeError:
        raise
    except (InvalidPipelineError, IncompatibleStateError):
        # A restart cannot fix it: the sensor does not relaunch it.
        run_id = context.run.run_id
        tag_run(context.instance, run_id, {UNFIT_TAG: unfit(run_id, stream_name_of(context.asset_key))})
        raise


def _run(step: StreamStep) -> dg.MaterializeResult[Any]:
    # First: what Dagster has loaded is a moment old, and what follows takes seconds.
    inputs = step.read_input_versions()
    live = live_run_beside(step)  # before Spark starts
    if live is not None:
        return leave_to(live, step)
    if step.choice.from_epoch is None:
        store = step.coordinator.address.open()
        refuse_empty_store(store, step.context.instance, step.key, step.place.uri)
    lease_timeout_ms = step.streaming.options.recovery.lease_timeout_ms
    opened = threading.Event()
    try:
        with beating_until_open(step.chain.store, step.holder, lease_timeout_ms, step.clock) as beat:

            def on_open() -> None:
                opened.set()
                beat.end()

            if step.choice.rebuild:
                rebuild_stream(step, beat.pulse)
                beat.pulse.sign()
            return run_workload(step, choose_workload(step), inputs, on_open)
    except FencedError:
        # Another run may have opened the stream while Spark started here.
        live = None if opened.is_set() else live_run_beside(step)
        if live is None:
            raise
        return leave_to(live, step)
