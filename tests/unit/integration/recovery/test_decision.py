"""The decision table, row by row, and the rules around it."""

from dataclasses import replace
from datetime import timedelta

import pytest

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.ids import Term
from dagster_ckpt.integration.declared.recovery_policy import Recovery
from dagster_ckpt.integration.recovery.crash_loop import Cause, RunError, SameError
from dagster_ckpt.integration.recovery.decision import GaveUp, Launch, Unavailable, Verdict, decide
from dagster_ckpt.integration.recovery.stream_view import LeaseView, PoolView, RunState, RunView, StartView, StreamView
from dagster_ckpt.protocol.lease import Life
from dagster_ckpt.runtime.run_mode import Mode

NOW, CONTINUOUS = Mode.AVAILABLE_NOW, Mode.CONTINUOUS
TERM = Term(7)
LIVE = LeaseView(TERM, Life.BEATING, silent_ms=12_000)
LAPSED = LeaseView(TERM, Life.LAPSED, silent_ms=30_000)
DEAD = LeaseView(TERM, Life.DEAD)
CLOSED = LeaseView(TERM, Life.CLOSED, silent_ms=999_000)
INTERRUPTED = LeaseView(TERM, Life.CLOSED, silent_ms=180_000, interrupted=True)

NOTHING = None
RECOVER = Launch(1, TERM, NOW)
FIRST_TRY = Launch(1, None, NOW)
NEXT = Launch(0, None, CONTINUOUS)


def in_mode(launch: Launch | None, mode: Mode) -> Launch | None:
    return launch and replace(launch, mode=mode)


def judge(
    run: RunView | None,
    lease: LeaseView | None,
    mode: Mode = NOW,
    *,
    autostart: bool = False,
    progressed: bool = False,
    new_code: bool = False,
    recovery: Recovery | None = None,
) -> Verdict:
    return decide(StreamView(mode, autostart, run, lease, progressed, new_code), recovery or Recovery())


def ran(state: RunState, *, opened: bool = True, same_ms: int = 0) -> RunView:
    return RunView(state, NOW, opened=opened, same_ms=same_ms)


TABLE = [
    # newest Dagster run, lease of the newest term, what follows available_now, what follows continuous
    ("none", None, None, NOTHING, NOTHING),
    ("none, the past is known", None, CLOSED, NOTHING, NOTHING),
    ("queued, for ever", ran(RunState.WAITING, same_ms=999_000), None, NOTHING, NOTHING),
    ("queued behind a dead writer", ran(RunState.WAITING, opened=False, same_ms=999_000), LAPSED, NOTHING, NOTHING),
    (
        "launched and not started, within 3 minutes",
        ran(RunState.LAUNCHED, opened=False, same_ms=179_000),
        LAPSED,
        NOTHING,
        NOTHING,
    ),
    (
        "launched and not started within 3 minutes",
        ran(RunState.LAUNCHED, opened=False, same_ms=180_000),
        LAPSED,
        RECOVER,
        RECOVER,
    ),
    (
        "launched and not started, another's lease beats",
        ran(RunState.LAUNCHED, opened=False, same_ms=999_000),
        LIVE,
        NOTHING,
        NOTHING,
    ),
    ("started, live lease", ran(RunState.STARTED), LIVE, NOTHING, NOTHING),
    ("started, lease closed, other steps go on", ran(RunState.STARTED), CLOSED, NOTHING, NOTHING),
    ("started, lapsed lease", ran(RunState.STARTED), LAPSED, RECOVER, RECOVER),
    ("started, process known to be dead", ran(RunState.STARTED), DEAD, RECOVER, RECOVER),
    ("failed, lease not closed: needs no lapse", ran(RunState.FAILED), LIVE, RECOVER, RECOVER),
    ("failed, lease lapsed", ran(RunState.FAILED), LAPSED, RECOVER, RECOVER),
    ("failed, own step had ended", ran(RunState.FAILED), CLOSED, NOTHING, NEXT),
    ("failed, own step was interrupted", ran(RunState.FAILED), INTERRUPTED, FIRST_TRY, FIRST_TRY),
    ("started for long after an interruption", ran(RunState.STARTED), INTERRUPTED, FIRST_TRY, FIRST_TRY),
    (
        "started, interrupted just now",
        ran(RunState.STARTED),
        replace(INTERRUPTED, silent_ms=179_000),
        NOTHING,
        NOTHING,
    ),
    ("canceled, which interrupts", ran(RunState.CANCELED), INTERRUPTED, NOTHING, NOTHING),
    (
        "failed before it ever opened",
        ran(RunState.FAILED, opened=False),
        None,
        Launch(1, None, NOW),
        Launch(1, None, NOW),
    ),
    (
        "failed before it opened, the one before had closed",
        ran(RunState.FAILED, opened=False),
        CLOSED,
        Launch(1, None, NOW),
        Launch(1, None, NOW),
    ),
    ("failed without opening, another's lease beats", ran(RunState.FAILED, opened=False), LIVE, NOTHING, NOTHING),
    ("failed without opening, another's lease lapsed", ran(RunState.FAILED, opened=False), LAPSED, RECOVER, RECOVER),
    ("canceled, lease closed", ran(RunState.CANCELED), CLOSED, NOTHING, NOTHING),
    ("canceled, lease lapsed", ran(RunState.CANCELED), LAPSED, NOTHING, NOTHING),
    ("success", ran(RunState.SUCCEEDED), CLOSED, NOTHING, NEXT),
    ("success, lease left open", ran(RunState.SUCCEEDED), LIVE, NOTHING, Launch(0, TERM, CONTINUOUS)),
    ("did not open, within 3 minutes", ran(RunState.STARTED, opened=False, same_ms=179_000), None, NOTHING, NOTHING),
    (
        "did not open within 3 minutes",
        ran(RunState.STARTED, opened=False, same_ms=180_000),
        None,
        Launch(1, None, NOW),
        Launch(1, None, NOW),
    ),
    (
        "did not open within 3 minutes, another's lease lapsed",
        ran(RunState.STARTED, opened=False, same_ms=180_000),
        LAPSED,
        RECOVER,
        RECOVER,
    ),
    ("waits for a live writer, for ever", ran(RunState.STARTED, opened=False, same_ms=999_000), LIVE, NOTHING, NOTHING),
]


@pytest.mark.parametrize(
    ("run", "lease", "available_now", "continuous"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE]
)
@pytest.mark.parametrize("mode", list(Mode))
def test_every_row_of_the_table(
    run: RunView | None, lease: LeaseView | None, available_now: Launch | None, continuous: Launch | None, mode: Mode
) -> None:
    run = run and replace(run, mode=mode)
    expected = available_now if mode is NOW else continuous
    assert judge(run, lease, mode).launch == in_mode(expected, mode)


STARTS = [
    # the beat of a run that has not opened, the lease of the newest term, for how long it has been so, what follows
    ("it beats, for longer than 3 minutes", StartView(Life.BEATING), CLOSED, 800_000, None),
    ("its process is gone", StartView(Life.DEAD), CLOSED, 0, FIRST_TRY),
    ("its beat lapsed", StartView(Life.LAPSED, 30_000), CLOSED, 40_000, FIRST_TRY),
    ("its beat lapsed after another's lease", StartView(Life.LAPSED, 30_000), LAPSED, 40_000, RECOVER),
    ("its beat lapsed, another's lease beats", StartView(Life.LAPSED, 30_000), LIVE, 40_000, None),
    ("it hung until it beat no more", StartView(Life.LAPSED, 30_000), CLOSED, 930_000, replace(FIRST_TRY, attempt=0)),
    ("it beat before its process was gone, for long", StartView(Life.DEAD), CLOSED, 930_000, FIRST_TRY),
    ("it has no beat", None, CLOSED, 179_000, None),
    ("it has no beat, for 3 minutes", None, CLOSED, 180_000, FIRST_TRY),
]


@pytest.mark.parametrize(
    ("start", "lease", "same_ms", "launch"), [row[1:] for row in STARTS], ids=[r[0] for r in STARTS]
)
@pytest.mark.parametrize("mode", list(Mode))
def test_a_run_that_has_not_opened_is_judged_by_its_beat(
    start: StartView | None, lease: LeaseView, same_ms: int, launch: Launch | None, mode: Mode
) -> None:
    run = replace(ran(RunState.STARTED, opened=False, same_ms=same_ms), mode=mode)
    verdict = decide(StreamView(mode, False, run, lease, start=start), Recovery())
    if launch is not None and not launch.attempt:
        launch = replace(launch, unavailable=1)  # what it waited for did not answer: no attempt is used up
    assert verdict.launch == in_mode(launch, mode)
    assert verdict.declare_failed == (launch is not None)


def test_a_run_that_hangs_before_its_opening_again_and_again_waits_and_is_reported() -> None:
    run = replace(ran(RunState.STARTED, opened=False, same_ms=910_000), unavailable=3)
    view = StreamView(NOW, False, run, CLOSED, start=StartView(Life.LAPSED, 19_999))
    waits = decide(view, Recovery())
    assert (waits.launch, waits.declare_failed) == (None, False), "or Dagster would keep no word of why"
    assert waits.unavailable is not None
    assert "did not open its stream" in str(waits.unavailable.error)
    due = decide(replace(view, start=StartView(Life.LAPSED, 20_000)), Recovery())
    assert due.declare_failed
    assert due.launch is not None
    assert (due.launch.attempt, due.launch.unavailable) == (0, 4)


def test_a_started_run_is_declared_failed_before_it_is_relaunched() -> None:
    assert judge(ran(RunState.STARTED), LAPSED).declare_failed
    assert judge(ran(RunState.LAUNCHED, opened=False, same_ms=180_000), LAPSED).declare_failed
    assert not judge(ran(RunState.FAILED), LAPSED).declare_failed
    assert not judge(ran(RunState.STARTED), LIVE).declare_failed


def test_a_worker_that_died_between_its_steps_end_and_its_own_is_noticed() -> None:
    goes_on = Verdict("its step has ended, its Dagster run continues")
    for mode, launch in ((NOW, None), (CONTINUOUS, NEXT)):
        run = replace(ran(RunState.STARTED, same_ms=180_000), mode=mode, others_done=True)
        assert judge(run, replace(CLOSED, silent_ms=179_000), mode) == goes_on
        verdict = judge(run, replace(CLOSED, silent_ms=180_000), mode)
        assert (verdict.declare_failed, verdict.launch) == (True, launch)
        assert judge(replace(run, others_done=False), CLOSED, mode) == goes_on
        assert judge(replace(run, same_ms=0), CLOSED, mode) == goes_on, "another step has only just ended"


def test_a_worker_whose_process_is_known_to_be_gone_is_noticed_at_once() -> None:
    gone = replace(CLOSED, silent_ms=0, gone=True)
    for mode, launch in ((NOW, None), (CONTINUOUS, NEXT)):
        run = replace(ran(RunState.STARTED), mode=mode, one_process=True)
        verdict = judge(run, gone, mode)
        assert (verdict.declare_failed, verdict.launch) == (True, launch)
        assert not judge(replace(run, one_process=False), gone, mode).declare_failed, "the worker is another process"
    verdict = judge(replace(ran(RunState.STARTED), one_process=True), replace(gone, interrupted=True))
    assert (verdict.declare_failed, verdict.launch) == (True, FIRST_TRY)


@pytest.mark.parametrize("lease", [None, CLOSED, LAPSED])
def test_autostart_starts_a_continuous_stream_that_has_never_run(lease: LeaseView | None) -> None:
    launch = judge(None, lease, CONTINUOUS, autostart=True).launch
    assert launch == Launch(0, TERM if lease is LAPSED else None, CONTINUOUS)


def test_autostart_starts_no_available_now_stream_and_disturbs_no_live_one() -> None:
    assert judge(None, None, NOW, autostart=True).launch is None
    assert judge(None, LIVE, CONTINUOUS, autostart=True).launch is None


def test_an_available_now_run_of_a_continuous_asset_is_followed_by_a_continuous_one() -> None:
    assert judge(replace(ran(RunState.SUCCEEDED), mode=NOW), CLOSED, CONTINUOUS).launch == NEXT


def test_a_continuous_run_of_an_available_now_asset_is_followed_by_a_continuous_one() -> None:
    assert judge(replace(ran(RunState.SUCCEEDED), mode=CONTINUOUS), CLOSED, NOW).launch == NEXT


@pytest.mark.parametrize("lease", [LIVE, LAPSED, DEAD, CLOSED])
@pytest.mark.parametrize("state", list(RunState))
def test_a_writer_of_another_dagster_instance_is_not_ours(state: RunState, lease: LeaseView) -> None:
    for opened in (True, False):
        run = ran(state, opened=opened, same_ms=10**9)
        assert decide(StreamView(CONTINUOUS, True, run, replace(lease, ours=False)), Recovery()).launch is None


def test_a_run_that_dagster_retries_is_left_to_dagster() -> None:
    verdict = judge(replace(ran(RunState.FAILED), left_to_dagster=True), LAPSED)
    assert (verdict.launch, verdict.declare_failed) == (None, False)


def test_a_pipeline_that_cannot_work_as_written_is_not_tried_again() -> None:
    for opened, lease in ((False, None), (False, CLOSED), (False, LAPSED), (True, LAPSED)):
        assert judge(replace(ran(RunState.FAILED, opened=opened), unfit=True), lease, CONTINUOUS).launch is None


def test_a_run_that_has_not_reached_the_streams_step_is_never_timed_out() -> None:
    run = replace(ran(RunState.STARTED, opened=False, same_ms=10**9), reached=False)
    assert judge(run, None).launch is None
    assert judge(run, LAPSED).launch is None


def test_a_step_that_was_passed_over_because_another_failed_left_nothing_to_recover() -> None:
    run = replace(ran(RunState.FAILED, opened=False), passed_over=True, reached=False)
    assert judge(run, CLOSED).launch is None
    assert judge(replace(run, mode=CONTINUOUS), CLOSED, CONTINUOUS).launch == NEXT


def test_a_rollback_that_a_run_never_did_is_reported_when_the_run_is_replaced() -> None:
    run = replace(ran(RunState.FAILED, opened=False), not_rolled_back=41)
    verdict = judge(run, LAPSED)
    assert verdict.launch == replace(RECOVER, not_rolled_back=41)
    assert "the rollback to epoch 41 was not done" in verdict.reason
    assert "41" not in judge(replace(run, not_rolled_back=None), LAPSED).reason
    assert "41" not in judge(replace(run, state=RunState.STARTED), LIVE).reason


def test_attempts_count_up_and_are_used_up() -> None:
    recovery = Recovery(max_attempts=3)
    attempts = []
    for attempt in range(5):
        run = replace(ran(RunState.FAILED), attempt=attempt, same_ms=10**9)
        launch = judge(run, LAPSED, recovery=recovery).launch
        attempts.append(launch and launch.attempt)
    assert attempts == [1, 2, 3, None, None]


def test_a_dead_run_is_declared_failed_even_when_the_attempts_are_used_up() -> None:
    verdict = judge(replace(ran(RunState.STARTED), attempt=5), LAPSED)
    assert (verdict.launch, verdict.declare_failed) == (None, True)


def test_a_committed_epoch_gives_all_attempts_back() -> None:
    launch = judge(replace(ran(RunState.FAILED), attempt=5), LAPSED, progressed=True).launch
    assert launch == RECOVER


def test_no_attempts_means_no_relaunch() -> None:
    verdict = judge(ran(RunState.FAILED), LAPSED, recovery=Recovery(max_attempts=0))
    assert (verdict.launch, verdict.gave_up) == (None, GaveUp(1, None, same=False))


POISON, OTHER = RunError("CheckpointDeclinedError", "not a carrier"), RunError("KeyError", "delay")


def times(number: int, error: RunError = POISON) -> SameError:
    return SameError(error.mark, number)


CRASHES = [
    # the run's error, what the runs before it failed with, since then: what the next run is told, or None and why
    ("the first failure", POISON, None, {}, times(1)),
    ("the same again", POISON, times(1), {}, times(2)),
    ("the same for the third time", POISON, times(2), {}, GaveUp(3, POISON, same=True)),
    ("the same for the fourth time, allowed once", POISON, times(3), {}, GaveUp(4, POISON, same=True)),
    ("another error", OTHER, times(2), {}, times(1, OTHER)),
    ("no word after two of the same", None, times(2), {}, times(2)),
    ("no word after more than are allowed since a deploy", None, times(3), {}, times(3)),
    ("no word at all", None, None, {}, None),
    ("an epoch was committed in between", POISON, times(2), {"progressed": True}, times(1)),
    ("an epoch was committed, then no word", None, times(2), {"progressed": True}, None),
    ("new code", POISON, times(2), {"new_code": True}, None),
]


@pytest.mark.parametrize(
    ("error", "before", "since", "expected"), [row[1:] for row in CRASHES], ids=[row[0] for row in CRASHES]
)
@pytest.mark.parametrize("mode", list(Mode))
def test_a_crash_loop_row_by_row(
    error: RunError | None, before: SameError | None, since: dict[str, bool], expected: object, mode: Mode
) -> None:
    run = replace(ran(RunState.FAILED, same_ms=10**9), mode=mode, error=error, before=before)
    verdict = judge(run, LAPSED, mode, recovery=Recovery(max_attempts=99), **since)
    if isinstance(expected, GaveUp):
        assert (verdict.launch, verdict.gave_up) == (None, expected)
        assert "with the same error" in verdict.reason
        assert "manual action needed" in verdict.reason
    else:
        assert verdict.launch is not None
        assert (verdict.launch.before, verdict.gave_up) == (expected, None)


def test_the_reason_of_a_recovery_names_the_error_that_it_follows() -> None:
    run = ran(RunState.FAILED, same_ms=10**9)
    reason = judge(replace(run, error=POISON), LAPSED).reason
    assert reason == "its Dagster run failed with CheckpointDeclinedError; relaunch 1 of 5"
    assert judge(run, LAPSED).reason == "its Dagster run failed; relaunch 1 of 5"


def test_of_a_loop_the_last_failure_counts_at_once_and_waits_for_no_back_off() -> None:
    run = replace(ran(RunState.FAILED, same_ms=0), error=POISON, before=times(2), attempt=2)
    assert judge(run, LAPSED).gave_up == GaveUp(3, POISON, same=True)


def test_runs_that_died_without_an_error_are_bounded_by_the_attempts_and_given_up_too() -> None:
    run = replace(ran(RunState.FAILED, same_ms=10**9), attempt=5)
    assert judge(run, LAPSED).gave_up == GaveUp(6, None, same=False)
    assert judge(replace(run, attempt=4), LAPSED).gave_up is None
    assert judge(replace(ran(RunState.STARTED), attempt=5), LAPSED).gave_up == GaveUp(6, None, same=False)


NO_ANSWER = RunError("StoreUnavailableError", "the disk is full", Cause.NO_ANSWER)


def test_a_store_that_does_not_answer_is_retried_for_ever_and_uses_up_no_attempt() -> None:
    recovery = Recovery()
    run = replace(ran(RunState.FAILED), error=NO_ANSWER, attempt=2, before=times(1))
    waits = []
    for failures in range(20):
        seen = replace(run, unavailable=failures)
        verdict = judge(replace(seen, same_ms=10**9), LAPSED, recovery=recovery)
        assert verdict.launch == Launch(2, TERM, NOW, before=times(1), unavailable=failures + 1)
        assert verdict.gave_up is None
        waits.append(recovery.wait_ms(failures + 1))
        if waits[-1]:
            assert judge(replace(seen, same_ms=waits[-1] - 1), LAPSED, recovery=recovery).launch is None
            assert judge(replace(seen, same_ms=waits[-1]), LAPSED, recovery=recovery).launch is not None
    assert waits[:4] == [0, 5_000, 10_000, 20_000]
    assert set(waits[10:]) == {300_000}, "in the end the longest pause, for ever"


def test_from_the_second_time_in_a_row_the_check_names_what_does_not_answer_while_the_relaunch_waits() -> None:
    run = replace(ran(RunState.FAILED), error=NO_ANSWER)
    assert judge(run, LAPSED).unavailable is None, "one may be a hiccup, and its relaunch follows at once"
    verdict = judge(replace(run, unavailable=1), LAPSED)
    assert (verdict.launch, verdict.unavailable) == (None, Unavailable(2, NO_ANSWER, 5_000))


def test_what_a_person_mends_outside_of_the_code_is_tried_again_slowly_for_ever_and_named_at_once() -> None:
    error, recovery = RunError.read("RowsRefusedError", "violates a constraint"), Recovery()
    run = replace(ran(RunState.FAILED), error=error, attempt=2, before=times(2))
    for failures in range(20):
        seen = replace(run, unavailable=failures)
        early = judge(replace(seen, same_ms=recovery.backoff_max_ms - 1), LAPSED, recovery=recovery)
        assert (early.launch, early.unavailable) == (None, Unavailable(failures + 1, error, recovery.backoff_max_ms))
        verdict = judge(replace(seen, same_ms=recovery.backoff_max_ms), LAPSED, recovery=recovery)
        assert verdict.launch == Launch(2, TERM, NOW, before=times(2), unavailable=failures + 1)
        assert verdict.gave_up is None


def test_a_crash_after_an_outage_counts_from_where_it_stood_before() -> None:
    run = replace(ran(RunState.FAILED, same_ms=10**9), error=POISON, attempt=1, before=times(1), unavailable=40)
    assert judge(run, LAPSED).launch == Launch(2, TERM, NOW, before=times(2))
    assert judge(replace(run, error=None), LAPSED).launch == Launch(2, TERM, NOW, before=times(1))


def test_an_epoch_or_new_code_begins_the_pauses_of_an_outage_again() -> None:
    run = replace(ran(RunState.FAILED, same_ms=0), error=NO_ANSWER, attempt=4, before=times(2), unavailable=40)
    assert judge(run, LAPSED, progressed=True).launch == Launch(0, TERM, NOW, unavailable=1)
    assert judge(run, LAPSED, new_code=True).launch == Launch(0, TERM, NOW, unavailable=1)


def test_a_stream_that_must_not_be_relaunched_is_not_relaunched_after_an_outage() -> None:
    verdict = judge(replace(ran(RunState.FAILED), error=NO_ANSWER), LAPSED, recovery=Recovery(max_attempts=0))
    assert (verdict.launch, verdict.gave_up) == (None, GaveUp(1, NO_ANSWER, same=False))


@pytest.mark.parametrize("state", [RunState.WAITING, RunState.STARTED])
def test_a_run_that_waits_for_a_slot_of_a_pool_is_not_timed_out_and_is_reported_only_where_waiting_is_no_use(
    state: RunState,
) -> None:
    busy = PoolView("spark", 1, ("other",))
    run = ran(state, opened=False, same_ms=10**9)
    for pool, stuck in (
        (busy, None),
        (replace(busy, ended=("other",)), replace(busy, ended=("other",))),
        (PoolView("spark", 0, ()), PoolView("spark", 0, ())),
    ):
        verdict = decide(StreamView(NOW, False, run, LAPSED, pool=pool), Recovery())
        assert (verdict.launch, verdict.declare_failed, verdict.stuck) == (None, False, stuck)
        assert "pool 'spark'" in verdict.reason
        soon = decide(StreamView(NOW, False, replace(run, same_ms=59_999), LAPSED, pool=pool), Recovery())
        assert soon.stuck is None, "a run that has just ended frees its slot itself"


def test_new_code_resets_the_attempts_even_if_they_were_used_up() -> None:
    run = replace(ran(RunState.FAILED), attempt=5, error=POISON, before=times(2))
    assert judge(run, LAPSED, new_code=True).launch == RECOVER
    strict = Recovery(same_error_max=1)
    assert judge(run, LAPSED, new_code=True, recovery=strict).launch == RECOVER


def test_nothing_else_gives_up() -> None:
    failed = replace(ran(RunState.FAILED), error=POISON, before=times(9), attempt=9)
    assert judge(failed, LAPSED).gave_up is not None
    for state in (RunState.WAITING, RunState.LAUNCHED, RunState.CANCELED, RunState.SUCCEEDED):
        assert judge(replace(failed, state=state), CLOSED).gave_up is None
    assert judge(replace(failed, unfit=True), LAPSED).gave_up is None
    assert judge(replace(failed, left_to_dagster=True), LAPSED).gave_up is None
    assert judge(replace(failed, opened=False), LIVE).gave_up is None
    assert judge(failed, CLOSED).gave_up is None
    assert judge(None, None).gave_up is None


@pytest.mark.parametrize(("attempt", "wait_s"), [(0, 0), (1, 5), (2, 10), (3, 20), (4, 40)])
def test_each_relaunch_waits_twice_as_long_as_the_one_before(attempt: int, wait_s: int) -> None:
    def launch(same_ms: int) -> Launch | None:
        return judge(replace(ran(RunState.FAILED), attempt=attempt, same_ms=same_ms), LAPSED).launch

    assert launch(wait_s * 1_000) is not None
    if wait_s:
        assert launch(wait_s * 1_000 - 1) is None


def test_the_wait_is_bounded() -> None:
    recovery = Recovery(max_attempts=99, backoff="1s", backoff_max="7s")
    assert [recovery.wait_ms(attempt) for attempt in range(1, 8)] == [0, 1_000, 2_000, 4_000, 7_000, 7_000, 7_000]


@pytest.mark.parametrize("mode", list(Mode))
def test_an_interrupted_run_counts_its_attempts_and_waits(mode: Mode) -> None:
    run = replace(ran(RunState.FAILED), mode=mode, attempt=1, same_ms=4_999)
    assert judge(run, INTERRUPTED, mode).launch is None
    assert judge(replace(run, same_ms=5_000), INTERRUPTED, mode).launch == Launch(2, None, mode)
    assert judge(replace(run, attempt=5, same_ms=10**9), INTERRUPTED, mode).launch is None


def test_a_dead_process_also_waits_for_its_back_off() -> None:
    run = replace(ran(RunState.STARTED), attempt=1)
    assert judge(run, replace(DEAD, silent_ms=4_000)).launch is None
    assert judge(run, replace(DEAD, silent_ms=5_000)).launch == Launch(2, TERM, NOW)


def test_a_polite_opening_outlasts_no_start_timeout() -> None:
    assert Recovery(lease_timeout="5min").start_timeout_ms == 600_000
    assert Recovery().start_timeout_ms == 180_000


@pytest.mark.parametrize(
    "options",
    [
        {"max_attempts": -1},
        {"same_error_max": 0},
        {"backoff": "-5s"},
        {"backoff": "soon"},
        {"backoff_max": "0s"},
        {"backoff": "10min", "backoff_max": "1min"},
        {"lease_timeout": "0ms"},
        {"lease_timeout": "10ms"},
        {"lease_timeout": "25h"},
        {"lease_timeout": timedelta(seconds=-3)},
    ],
)
def test_a_recovery_that_cannot_work_is_refused(options: dict[str, object]) -> None:
    with pytest.raises(InvalidPipelineError, match="="):
        Recovery(**options)  # type: ignore[arg-type]
