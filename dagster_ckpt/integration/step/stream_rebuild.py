"""A run that rebuilds its stream first, where its run config says so."""

from functools import partial

import dagster as dg

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.integration.dagster_names import rebuild_request
from dagster_ckpt.integration.events.rebuild_report import RebuildReport
from dagster_ckpt.integration.step.run_watch import RunWatch, Stop
from dagster_ckpt.integration.step.stream_step import StreamStep
from dagster_ckpt.integration.step.workload import stream_job, user_stream
from dagster_ckpt.runtime.driver.rebuild import RebuildHooks, rebuild
from dagster_ckpt.storage.leases.heartbeat import Pulse


def rebuild_stream(step: StreamStep, pulse: Pulse) -> None:
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
    job = stream_job(step, user_stream(step))
    request, pace = rebuild_request(run), step.choice.rebuild_pace
    make, version = partial(user_stream, step), step.code_version or ""
    if not rebuild(job, make, request, pace, hooks, step.clock, version):
        raise dg.DagsterExecutionInterruptedError
