"""When a stream's Dagster run must be started again: one pure decision over plain values.

The sensor collects what Dagster and the store report (`StreamView`), calls `decide` and carries out the verdict. This
module reads no clock, store or Dagster database, so the whole table below is a table in a test.

    newest Dagster run                                      available_now                     continuous
    none                                                    nothing                           start if `autostart`
    queued, or started with a live lease                    nothing                           nothing
    started with a lapsed lease; failed, lease not closed   recover                           recover
    failed, but the stream's own step had ended             nothing                           start the next
    failed, Dagster's run retries will retry it             nothing for 15 minutes, then      the same
                                                            recover
    failed, its own step was interrupted; started for
    3 minutes since the interruption                        recover                           recover
    canceled                                                nothing until a person starts it  the same
    success                                                 nothing                           start the next
    started, has not opened, and beats until it does        nothing                           nothing
    started, had not opened when its beat lapsed            recover                           recover
    did not open within 3 minutes of its start without a
    beat, or did not start within 3 minutes of its launch   recover                           recover

To recover is to relaunch, up to a limit: `same_error_max` runs in a row failed with the same error, or `max_attempts`
relaunches ended in any way, all without a new epoch. Then the sensor gives up: it launches nothing and the check
`no_crash_loop` fails. A run started by hand, another `code_version` or a committed epoch resets the counts.

A run that failed for a cause that no other code would mend (`Cause`) uses up no attempt. It is relaunched for ever:

    the store, a source, a destination or Spark's master    with pauses that grow up to `backoff_max`; from the second
    did not answer                                          such run in a row the check names what does not answer
    a person must mend something outside of the code        `backoff_max` after each run; the check says what, at once
"""

from dataclasses import dataclass, replace

from dagster_ckpt.ids import Term
from dagster_ckpt.integration.declared.recovery_policy import Recovery
from dagster_ckpt.integration.recovery.crash_loop import Cause, RunError, SameError, count
from dagster_ckpt.integration.recovery.stream_view import (
    LeaseView,
    PoolView,
    RunState,
    RunView,
    StartView,
    StreamView,
)
from dagster_ckpt.protocol.lease import Life
from dagster_ckpt.runtime.run_mode import Mode

STARTING_MS_MAX = 900_000
"""The longest that a run beats before it opens its stream. After that, what it waits for (likely Spark) is down."""

STUCK_MS = 60_000
"""A run that has ended frees its slot a moment later; one that still holds it after this long was killed."""


@dataclass(frozen=True, slots=True)
class Launch:
    """Start a Dagster run.

    `attempt` is 0 for one that follows a clean end. `may_fence` is the one term it may fence without waiting.
    `not_rolled_back` is the epoch of a rollback that the previous run was asked for and did not do; neither will this
    one. `before` is the error of the runs before it, to compare its failure with. `unavailable` runs in a row ended
    because something did not answer, or must be mended outside of the code.
    """

    attempt: int
    may_fence: Term | None
    mode: Mode
    not_rolled_back: int | None = None
    before: SameError | None = None
    unavailable: int = 0


@dataclass(frozen=True, slots=True)
class GaveUp:
    """Relaunching has stopped. `failures` runs in a row ended without a new epoch, the last one with `error`.

    `same`: all of them with that error.
    """

    failures: int
    error: RunError | None
    same: bool


@dataclass(frozen=True, slots=True)
class Unavailable:
    """What the stream needs does not answer, or refuses. `failures` runs in a row ended so, the last one with `error`.

    Relaunching continues, the next time after a pause of `wait_ms`.
    """

    failures: int
    error: RunError
    wait_ms: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """What to do, and why (`reason` is for people).

    `declare_failed`: report the newest run to Dagster as failed, before anything is launched. `gave_up`: nothing is
    launched, and the stream's check reports why. `unavailable`: the check reports what to mend. `stuck`: the
    check reports that this pool has no slot for the run, and will not have one without help. `waits`: the relaunch is
    not due yet.
    """

    reason: str
    declare_failed: bool = False
    launch: Launch | None = None
    gave_up: GaveUp | None = None
    unavailable: Unavailable | None = None
    stuck: PoolView | None = None
    waits: bool = False

    @property
    def needs_newest(self) -> bool:
        """Whether it depends on the newest epoch: one committed since the launch makes a failure the first in a row."""
        acts = self.launch is not None or self.declare_failed or self.waits
        return acts or self.gave_up is not None or self.unavailable is not None


def decide(view: StreamView, recovery: Recovery) -> Verdict:
    """What must happen to this stream now. The same view always gets the same verdict."""
    verdict, run = _decide(view, recovery), view.run
    if verdict.launch is None or run is None or run.not_rolled_back is None:
        return verdict
    # A relaunch never repeats a rollback: it could be the second time. So the reason reports it.
    lost = (
        f"the rollback to epoch {run.not_rolled_back} was not done, and the next run will not do it: request it again"
    )
    launch = replace(verdict.launch, not_rolled_back=run.not_rolled_back)
    return replace(verdict, reason=f"{verdict.reason}; {lost}", launch=launch)


def _decide(view: StreamView, recovery: Recovery) -> Verdict:
    run, lease = view.run, view.lease
    if lease is not None and not lease.ours:
        return Verdict("its last writer belongs to another Dagster instance")
    if run is None:
        return _never_run(view)
    match run.state:
        case RunState.WAITING | RunState.CANCELED:
            return _not_due(view, run)
        case RunState.LAUNCHED | RunState.STARTED:
            return _while_started(view, run, recovery)
        case RunState.FAILED:
            return _after_failure(view, run, recovery)
        case RunState.SUCCEEDED:
            return _after_success(view, run)


def _never_run(view: StreamView) -> Verdict:
    if view.mode is Mode.CONTINUOUS and view.autostart:
        return _start_next(view)
    return Verdict("it has never run")


def _after_success(view: StreamView, run: RunView) -> Verdict:
    if Mode.CONTINUOUS in {view.mode, run.mode}:
        return _start_next(view)
    return Verdict("it has ended")


def _while_started(view: StreamView, run: RunView, recovery: Recovery) -> Verdict:
    lease = view.lease
    if not run.opened or lease is None:
        return _not_open(view, run, recovery)
    match lease.life:
        case Life.CLOSED:
            return _after_end(view, run, lease, recovery)
        case Life.BEATING:
            return Verdict("live")
        case Life.DEAD:
            return _recover(view, run, recovery, "its process is gone", lease.silent_ms)
        case Life.LAPSED:
            why = f"its lease was not renewed for {lease.silent_ms / 1000:g} s"
            return _recover(view, run, recovery, why, lease.silent_ms)


def _after_end(view: StreamView, run: RunView, lease: LeaseView, recovery: Recovery) -> Verdict:
    """The stream's step has ended, its Dagster run has not: a worker may die in between."""
    what = "was interrupted" if lease.interrupted else "has ended"
    idle_ms = _idle_ms(run, lease)
    if run.one_process and lease.gone:
        why = f"its step {what}, and the process of its Dagster run is gone"
    elif idle_ms >= recovery.start_timeout_ms:
        why = f"its step {what}, and its Dagster run has had nothing to do for {idle_ms / 1000:g} s"
    else:
        return Verdict(f"its step {what}, its Dagster run continues")
    if lease.interrupted:
        return _recover(view, run, recovery, why, lease.silent_ms)
    return replace(_after_success(view, run), reason=why, declare_failed=True)


def _idle_ms(run: RunView, lease: LeaseView) -> int:
    """For how long a Dagster run has had nothing to do since the stream's step.

    Other steps may run for any time, such as a check of the stream's table; an interruption ends them too.
    """
    if lease.interrupted:
        return lease.silent_ms
    return min(lease.silent_ms, run.same_ms) if run.others_done else 0


def _not_due(view: StreamView, run: RunView) -> Verdict:
    if run.state is RunState.CANCELED:
        return Verdict("canceled: start it again by hand")
    return Verdict("its Dagster run is queued") if view.pool is None else _waits_for_slot(run, view.pool)


def _waits_for_slot(run: RunView, pool: PoolView) -> Verdict:
    stuck = pool if pool.is_stuck and run.same_ms >= STUCK_MS else None
    return Verdict(f"its Dagster run waits for a slot of the pool {pool.name!r}", stuck=stuck)


def _not_open(view: StreamView, run: RunView, recovery: Recovery) -> Verdict:
    if view.pool is not None and run.state is RunState.STARTED:
        return _waits_for_slot(run, view.pool)
    if not run.reached:
        return Verdict("its Dagster run is busy with other steps")
    if view.lease is not None and view.lease.lives:
        return Verdict("its Dagster run waits for a live writer to end")
    if view.start is not None and run.state is RunState.STARTED:
        return _starting(view, run, view.start, recovery)
    if run.same_ms < recovery.start_timeout_ms:
        return Verdict("its Dagster run has not opened it yet")
    what = "its Dagster run was launched and did not start" if run.state is RunState.LAUNCHED else "it was not opened"
    return _recover(view, run, recovery, f"{what} within {run.same_ms / 1000:g} s", run.same_ms)


def _starting(view: StreamView, run: RunView, start: StartView, recovery: Recovery) -> Verdict:
    if start.life is Life.BEATING:
        return Verdict("its Dagster run is starting")
    if start.life is Life.LAPSED and run.same_ms >= STARTING_MS_MAX:
        what = f"the run is alive but did not open its stream within {run.same_ms / 1000:g} s: is Spark reachable?"
        return _wait_for_an_answer(view, run, RunError("NotOpened", what, Cause.NO_ANSWER), recovery, start.silent_ms)
    what = "its process is gone" if start.life is Life.DEAD else f"no heartbeat for {start.silent_ms / 1000:g} s"
    return _recover(view, run, recovery, f"{what}, before it opened the stream", start.silent_ms)


def _after_failure(view: StreamView, run: RunView, recovery: Recovery) -> Verdict:
    lease = view.lease
    if run.left_to_dagster and run.same_ms < STARTING_MS_MAX:
        # Not for ever: Dagster's daemon may give up (a run without a job origin, an ended backfill) and leave its mark.
        return Verdict("Dagster's run retries retry it")
    if run.unfit:
        why = "" if run.error is None else f" ({run.error})"
        return Verdict(f"its pipeline is invalid: fix it and start the stream again{why}")
    if not run.opened and lease is not None and lease.lives:
        return Verdict("another writer of it is live")
    if run.passed_over or (run.opened and lease is not None and lease.finished):
        if run.mode is Mode.CONTINUOUS:
            return _start_next(view)
        return Verdict("its step had ended; its Dagster run failed in another step")
    interrupted = run.opened and lease is not None and lease.interrupted
    failed = "its Dagster run failed" if run.error is None else f"its Dagster run failed with {run.error.kind}"
    why = "its step was interrupted" if interrupted else failed
    return _recover(view, run, recovery, why, run.same_ms)


def _recover(view: StreamView, run: RunView, recovery: Recovery, why: str, since_ms: int) -> Verdict:
    if run.error is not None and run.error.cause is not Cause.CODE and recovery.max_attempts:
        return _wait_for_an_answer(view, run, run.error, recovery, since_ms)
    attempt = 1 if view.progressed or view.new_code else run.attempt + 1
    # An error of other code proves nothing about this code; one that came after an epoch is the first at this one.
    same = None if view.new_code else count(None if view.progressed else run.before, run.error)
    declare_failed = run.state in {RunState.LAUNCHED, RunState.STARTED}
    gave_up = _gave_up(run, recovery, attempt, same)
    if gave_up is not None:
        in_a_row = "with the same error" if gave_up.same else "or died"
        times = f"{gave_up.failures} runs in a row failed {in_a_row}" if gave_up.failures > 1 else "its run failed"
        return Verdict(
            f"{why}; {times}, without a new epoch: manual action needed", declare_failed, launch=None, gave_up=gave_up
        )
    wait_ms = recovery.wait_ms(attempt)
    if since_ms < wait_ms:
        return Verdict(f"{why}; relaunch {attempt} of {recovery.max_attempts} waits {wait_ms / 1000:g} s", waits=True)
    return Verdict(
        f"{why}; relaunch {attempt} of {recovery.max_attempts}",
        declare_failed,
        Launch(attempt, _may_fence(view.lease), run.mode, before=same),
    )


def _wait_for_an_answer(view: StreamView, run: RunView, error: RunError, recovery: Recovery, since_ms: int) -> Verdict:
    """Relaunch without limit, with growing pauses: the stream is not at fault, so no attempt is used up."""
    begins = view.progressed or view.new_code
    failures = 1 if begins else run.unavailable + 1
    if error.cause is Cause.OUTSIDE:
        wait_ms, what = recovery.backoff_max_ms, "something outside of the code must be mended"
    else:
        wait_ms, what = recovery.wait_ms(failures), "what the stream needs did not answer"
    # One without an answer may be a hiccup, and its relaunch follows at once.
    unavailable = Unavailable(failures, error, wait_ms) if failures > 1 or error.cause is Cause.OUTSIDE else None
    why = f"{what}, {failures} times in a row ({error.kind}); its relaunch"
    if since_ms < wait_ms:
        return Verdict(f"{why} waits {wait_ms / 1000:g} s", unavailable=unavailable, waits=True)
    attempt, before = (0, None) if begins else (run.attempt, run.before)
    launch = Launch(attempt, _may_fence(view.lease), run.mode, before=before, unavailable=failures)
    # Declared failed only now: Dagster would not record why a run hangs.
    declare_failed = run.state is RunState.STARTED
    return Verdict(f"{why} is due", declare_failed, launch=launch, unavailable=unavailable)


def _gave_up(run: RunView, recovery: Recovery, attempt: int, same: SameError | None) -> GaveUp | None:
    if run.error is not None and same is not None and same.times >= recovery.same_error_max:
        return GaveUp(same.times, run.error, same=True)
    # The first of them was no relaunch.
    return GaveUp(attempt, run.error, same=False) if attempt > recovery.max_attempts else None


def _start_next(view: StreamView) -> Verdict:
    lease = view.lease
    # Where the lease names the run that has ended, Dagster's status is enough.
    own = view.run is not None and view.run.opened
    if not own and lease is not None and lease.lives:
        return Verdict("another writer of it is live")
    mode = view.run.mode if view.run is not None and view.mode is not Mode.CONTINUOUS else view.mode
    return Verdict("the next run is due", launch=Launch(0, _may_fence(lease), mode))


def _may_fence(lease: LeaseView | None) -> Term | None:
    """A closed lease needs no fencing: its stream opens at once."""
    return None if lease is None or lease.life is Life.CLOSED else lease.term
