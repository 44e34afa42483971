"""A stream as the decision sees it: plain values of what Dagster and the store report."""

from dataclasses import dataclass, field
from enum import StrEnum

from dagster_ckpt.ids import Term
from dagster_ckpt.integration.recovery.crash_loop import RunError, SameError
from dagster_ckpt.protocol.lease import Life
from dagster_ckpt.runtime.run_mode import Mode


class RunState(StrEnum):
    """Where Dagster has a run."""

    WAITING = "waiting"  # in Dagster's queue, for any length of time
    LAUNCHED = "launched"  # its worker has not reported yet
    STARTED = "started"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELED = "canceled"  # or being canceled


@dataclass(frozen=True, slots=True)
class RunView:
    """The stream's newest Dagster run.

    `attempt` is the number of this relaunch, 0 for a run that is none. `opened`: the newest term's lease names it.
    `one_process`: its steps run in the process of its worker, which is then the one that the lease names.
    `others_done`: only this stream's step is unfinished. `reached`: that step is running. `passed_over`: it never will,
    because a step before it failed. `unfit`: it ended because its pipeline is invalid. `left_to_dagster`: Dagster's run
    retries will retry it. `not_rolled_back`: the epoch of a requested rollback that it did not do, because it never
    opened. `same_ms`: for how long it was seen like this. `error`: what it failed with, None where it died without
    reporting one. `before`: the error of the runs before it, and how often it occurred. `unavailable`: how many runs in
    a row before it ended because something did not answer.
    """

    state: RunState
    mode: Mode
    attempt: int = 0
    opened: bool = False
    reached: bool = True
    one_process: bool = False
    others_done: bool = False
    passed_over: bool = False
    unfit: bool = False
    left_to_dagster: bool = False
    not_rolled_back: int | None = None
    same_ms: int = 0
    error: RunError | None = field(default=None, repr=False)
    before: SameError | None = None
    unavailable: int = 0

    @property
    def may_wait(self) -> bool:
        """Whether it may be waiting for its turn to run."""
        return not self.opened and self.state in {RunState.WAITING, RunState.STARTED}


@dataclass(frozen=True, slots=True)
class LeaseView:
    """The lease of the newest term; a term without one counts as a lease whose counter stays at 0.

    `ours`: its writer belonged to this Dagster instance. `silent_ms`: for how long its counter has been seen unchanged.
    `interrupted`: it was closed by a writer that was interrupted before its work was done. `gone`: the process that it
    names is known to have ended, even if the lease is still open.
    """

    term: Term
    life: Life
    ours: bool = True
    silent_ms: int = 0
    interrupted: bool = False
    gone: bool = False

    @property
    def finished(self) -> bool:
        """Whether its writer ended cleanly. An interruption that was not requested through Dagster is no clean end."""
        return self.life is Life.CLOSED and not self.interrupted

    @property
    def lives(self) -> bool:
        return self.life is Life.BEATING


@dataclass(frozen=True, slots=True)
class StartView:
    """The open heartbeat of the newest run, which has started and not opened the stream; unchanged for `silent_ms`."""

    life: Life
    silent_ms: int = 0


@dataclass(frozen=True, slots=True)
class PoolView:
    """A Dagster pool that has no slot for the stream's newest run: `holders` hold all of its `limit` slots.

    `ended` are the holders that have ended: Dagster never frees their slots.
    """

    name: str
    limit: int
    holders: tuple[str, ...]
    ended: tuple[str, ...] = ()

    @property
    def is_stuck(self) -> bool:
        """Whether waiting is useless."""
        return self.limit == 0 or bool(self.ended)


@dataclass(frozen=True, slots=True)
class StreamView:
    """The whole input of the decision. `lease` is None for a stream that was never opened.

    `mode` is the asset's. `progressed`: an epoch was committed since the newest run was launched. `new_code`: the asset
    has another code version now than when that run was launched. `pool`: the pool that blocks a run which has not
    opened the stream; None where none does. `start`: the heartbeat of a run that has not opened the stream; None where
    it has none.
    """

    mode: Mode
    autostart: bool
    run: RunView | None
    lease: LeaseView | None
    progressed: bool = False
    new_code: bool = False
    pool: PoolView | None = None
    start: StartView | None = None
