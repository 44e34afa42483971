"""When a run of a stream, or of a delivery, ends cleanly, and how it waits between two tries."""

from collections.abc import Callable
from typing import TypeVar

from dagster_ckpt.clock import Clock
from dagster_ckpt.ids import Epoch
from dagster_ckpt.runtime.driver.stream_job import Ending, JobHooks, JobOptions
from dagster_ckpt.storage.leases.liveness import Pulse
from dagster_ckpt.storage.writer.drain_requests import DrainWatch
from dagster_ckpt.storage.writer.stream_writer import StreamWriter

T = TypeVar("T")

TICK_MS = 200
"""The longest sleep between two calls of `on_idle`."""


class RunEnd:
    """Knows when the run ends: its time is up, Dagster wants it to stop, or it was asked to drain."""

    _drain: DrainWatch

    def __init__(self, options: JobOptions, hooks: JobHooks, clock: Clock, pulse: Pulse) -> None:
        self._options = options
        self._hooks = hooks
        self._clock = clock
        self._pulse = pulse
        run_for_ms = options.run_for_ms
        self._end_ms = None if run_for_ms is None else clock.monotonic_ms() + run_for_ms

    def opened(self, writer: StreamWriter) -> None:
        """Watch for requests to drain this writer, the run's first. Call it before `reason`."""
        holder, interval_ms = writer.heartbeat.lease.holder, self._options.checkpoint_interval_ms
        self._drain = DrainWatch(writer.store, self._clock, holder, writer.term, interval_ms)

    def reason(self, epoch: Epoch) -> tuple[Ending, str | None] | None:
        """Why to end cleanly now, None to go on. `epoch` is the newest that the run has committed."""
        reason = self._hooks.stop_reason() or self._drain.reason(epoch)
        if reason is not None:
            return Ending.STOPPED, reason
        if self._end_ms is not None and self._clock.monotonic_ms() >= self._end_ms:
            return Ending.RUN_FOR, None
        return None

    def pause(self, failures: int, reason_to_end: Callable[[], T | None]) -> T | None:
        """Wait before the next try after `failures` in a row; returns a reason to end, if there is one meanwhile."""
        chance = int(self._clock.unique()[:4], 16) / 0xFFFF
        until_ms = self._clock.monotonic_ms() + self._options.pause_ms(failures, chance)
        while True:
            self._pulse.sign()
            reason = reason_to_end()
            if reason is not None:
                return reason
            left_ms = until_ms - self._clock.monotonic_ms()
            if left_ms <= 0:
                return None
            self._hooks.on_idle()
            self._clock.sleep_ms(min(left_ms, TICK_MS))
