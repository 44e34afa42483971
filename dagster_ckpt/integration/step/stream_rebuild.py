"""A run that rebuilds its stream first, where its run config says so."""

from collections.abc import Callable
from functools import partial

import dagster as dg

from dagster_ckpt.clock import Clock
from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.integration.dagster_names import rebuild_request
from dagster_ckpt.integration.step.run_watch import RunWatch, Stop
from dagster_ckpt.integration.step.stream_step import StreamStep
from dagster_ckpt.integration.step.workload import stream_job, user_stream
from dagster_ckpt.runtime.driver.rebuild import Progress, RebuildHooks, rebuild
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


LOGGED_EVERY_MS = 10_000
OBSERVED_EVERY_MS = 60_000


class RebuildReport:
    """Reports the progress of one rebuild, the first at once. `log` takes a line, `log_event` an event of the asset."""

    def __init__(
        self,
        key: dg.AssetKey,
        clock: Clock,
        log: Callable[[str], None],
        log_event: Callable[[dg.AssetObservation], None],
    ) -> None:
        self._key = key
        self._clock = clock
        self._log = log
        self._log_event = log_event
        self._logged_ms: int | None = None
        self._observed_ms: int | None = None

    def progress(self, progress: Progress) -> None:
        """Report it, where the last report was some time ago."""
        now_ms = self._clock.monotonic_ms()
        if self._logged_ms is None or now_ms - self._logged_ms >= LOGGED_EVERY_MS:
            self._logged_ms = now_ms
            self._log(progress_text(progress))
        if self._observed_ms is None or now_ms - self._observed_ms >= OBSERVED_EVERY_MS:
            self._observed_ms = now_ms
            self._log_event(self._observation(progress))

    def _observation(self, progress: Progress) -> dg.AssetObservation:
        metadata = {
            "rebuild_epoch": dg.MetadataValue.int(progress.epoch),
            "rebuild_rows": dg.MetadataValue.int(progress.rows),
        }
        return dg.AssetObservation(asset_key=self._key, description=progress_text(progress), metadata=metadata)


def progress_text(progress: Progress) -> str:
    """The progress in a line."""
    text = f"Rebuilding as {progress.beside}: epoch {progress.epoch}, {progress.rows:,} rows read"
    if progress.lag is None:
        return f"{text}."
    if progress.lag.is_caught_up:
        return f"{text}, caught up."
    waiting = progress.lag.waiting
    counts = {"files": waiting.files, "rows": waiting.rows, "epochs": waiting.epochs}
    left = ", ".join(f"{count:,} {what}" for what, count in counts.items() if count is not None)
    return f"{text}, {left} to go." if left else f"{text}."
