"""A step's work, reported to Dagster while it goes on."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import dagster as dg

from dagster_ckpt.errors import FencedError
from dagster_ckpt.ids import EMPTY
from dagster_ckpt.integration.events import awaited_input, outdated_changes
from dagster_ckpt.integration.events.epoch_metadata import Metadata
from dagster_ckpt.integration.events.outdated_changes import OutdatedWatch
from dagster_ckpt.integration.events.recoveries import Recoveries
from dagster_ckpt.integration.events.step_events import EpochEvents, EventLog, final_result, refresh_ms_of
from dagster_ckpt.integration.recovery import crash_loop_check, live_check
from dagster_ckpt.integration.recovery.dagster_runs import tag_run
from dagster_ckpt.integration.recovery.live_check import LiveState, facts_of_writer
from dagster_ckpt.integration.step import lost_epochs
from dagster_ckpt.integration.step.run_watch import RunWatch, Stop
from dagster_ckpt.integration.step.stream_step import StreamStep
from dagster_ckpt.integration.step.workload import Workload
from dagster_ckpt.protocol.manifest.manifest import Manifest
from dagster_ckpt.runtime.driver.stream_job import JobHooks
from dagster_ckpt.runtime.micro_batch.epoch_driver import CommittedEpoch
from dagster_ckpt.runtime.run_mode import Mode


def run_workload(
    step: StreamStep, workload: Workload, inputs: Metadata, on_open: Callable[[], None]
) -> dg.MaterializeResult[Any]:
    """Run it to its end, and report to Dagster what happens meanwhile; the result is the newest epoch.

    `inputs` is metadata of ordinary inputs; `on_open` is called once the stream is open, before anything is reported.
    """
    context = step.context
    table = replace(step.table, upstreams=workload.upstream_keys, work=workload.work, inputs=inputs | workload.metadata)
    recoveries = Recoveries.of_stream(context.instance, step.stream_name, step.clock)
    event_log = EventLog(
        step.key,
        step.stream_name,
        step.code_version,
        step.log_event,
        step.may_report,
        step.reported_totals,
        table,
        recoveries.metadata,
        step.late_rows_reported,
    )
    events = EpochEvents(
        event_log, step.coordinator.event_interval_ms, step.clock, refresh_ms_of(step.freshness_policy)
    )
    watch = RunWatch(context.instance, context.run.run_id, step.clock)
    if step.mode is Mode.CONTINUOUS:
        tag_run(context.instance, context.run.run_id, step.tags_at_work)
    holder, began_s = step.holder, step.clock.now_ms() / 1000
    changes = OutdatedWatch(step.key, outdated_changes.latest(context.instance, step.key), events.report, step.clock)

    def on_stream_open(manifest: Manifest) -> None:
        on_open()
        events.on_open(manifest)
        facts = facts_of_writer(LiveState.LIVE, manifest, holder, began_s)
        events.report(manifest, live_check.evaluation(step.key, facts))
        changes.on_open(manifest)
        for observation in _observations_on_open(step, recoveries, manifest):
            events.report(manifest, observation)

    def on_commit(epoch: CommittedEpoch) -> None:
        events.on_commit(epoch)
        changes.on_commit(epoch)

    hooks = JobHooks(
        on_commit=on_commit,
        stop_reason=watch.stop_reason,
        on_idle=events.idle,
        on_open=on_stream_open,
        on_lag=events.on_lag,
        on_skipped=events.skips,
        on_changed_functions=events.on_changed_functions,
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
    newest = step.newest(result.manifest)
    step.show_pass(crash_loop_check.evaluation_passed(step.key, newest.epoch))
    ended = live_check.result(step.key, facts_of_writer(LiveState.ENDED, result.manifest, holder, began_s))
    shown = final_result(
        context.instance, step.key, step.stream_name, newest, events.work, table, events.lag_metadata(newest)
    )
    return shown._replace(
        metadata={**(shown.metadata or {}), **events.once, **recoveries.metadata()},
        check_results=[*(shown.check_results or ()), ended, changes.result],
    )


def _observations_on_open(
    step: StreamStep, recoveries: Recoveries, manifest: Manifest
) -> Iterator[dg.AssetObservation]:
    """What there is to say of the stream, just opened at this manifest."""
    if (recovered := recoveries.observation(step.key, step.context.run)) is not None:
        yield recovered
    if (restored := lost_epochs.observation(step.key, step.reported_totals(), manifest, step.chain)) is not None:
        step.context.log.warning(restored.description)
        yield restored
    if manifest.epoch == EMPTY:
        waits = awaited_input.observation(step.key, manifest.pipeline)
        step.context.log.info(waits.description)
        yield waits
