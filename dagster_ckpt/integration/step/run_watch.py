"""A stream at work asks Dagster whether its run is still wanted: not every interruption reaches the process."""

import logging
from dataclasses import dataclass
from enum import StrEnum

import dagster as dg

from dagster_ckpt.clock import Clock
from dagster_ckpt.errors import FencedError
from dagster_ckpt.integration.dagster_names import drain_requested

LOOK_MS = 2_000
"""The time between two checks: one small query per stream at work."""


class Stop(StrEnum):
    """Why a stream at work must end, according to Dagster."""

    CANCELED = "its Dagster run was canceled"
    GONE = "its Dagster run was deleted"
    DRAIN = "it was asked to end at the next epoch"


_LOG = logging.getLogger(__name__)


@dataclass
class RunWatch:
    """One Dagster run as seen from its step. A reason to stop stays, once there is one."""

    instance: dg.DagsterInstance
    run_id: str
    clock: Clock
    stop: Stop | None = None
    _looked_ms: int | None = None

    def stop_reason(self) -> str | None:
        """Why the stream must end; None to continue. Cheap: it asks Dagster every other second at most.

        Raises `FencedError` if Dagster has declared the run failed: another will follow. That is no clean end, so the
        lease must not be closed.
        """
        now_ms = self.clock.monotonic_ms()
        if self.stop is None and (self._looked_ms is None or now_ms - self._looked_ms >= LOOK_MS):
            self._looked_ms = now_ms
            self.stop = self._look()
        return self.stop

    def _look(self) -> Stop | None:
        try:
            run = self.instance.get_run_by_id(self.run_id)
        except Exception as error:  # noqa: BLE001 (Dagster's database may be busy; the stream has work to do)
            _LOG.warning("Dagster did not report its run's status; retried soon. run=%s, error=%r", self.run_id, error)
            return None
        return requested_stop(run)


def requested_stop(run: dg.DagsterRun | None) -> Stop | None:
    """The stop that Dagster's record of the run asks for. Raises `FencedError` for one that was declared failed."""
    if run is None:
        return Stop.GONE
    match run.status:
        case dg.DagsterRunStatus.FAILURE:
            raise FencedError(
                "Dagster declared this run failed while it was working, so another may follow: this one has stopped. "
                f"dagster_run={run.run_id}"
            )
        case dg.DagsterRunStatus.CANCELING | dg.DagsterRunStatus.CANCELED:
            return Stop.CANCELED
    return Stop.DRAIN if drain_requested(run.tags) else None


def goes_on(run: dg.DagsterRun | None) -> bool:
    """Whether Dagster has the run unfinished, and nothing has asked it to end."""
    return run is not None and not run.is_finished and requested_stop(run) is None
