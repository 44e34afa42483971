"""The check that every streaming asset has: `no_crash_loop`, on the Checks tab of its page in Dagster's UI.

It belongs to the asset's step. A run passes it with the first epoch that it commits, and again with its result. The
recovery sensor fails it where it has given up, where something does not answer (it keeps retrying), and where Dagster
never starts a queued run: an event without a run, newer than those of the runs that failed.
"""

from collections.abc import Mapping

import dagster as dg

from dagster_ckpt.ids import Epoch
from dagster_ckpt.integration.recovery.crash_loop import Cause
from dagster_ckpt.integration.recovery.decision import GaveUp, Unavailable
from dagster_ckpt.integration.recovery.sensor_check import latest_evaluation, to_evaluation
from dagster_ckpt.integration.recovery.stream_view import PoolView

CHECK = "no_crash_loop"

_RUN, _LAST_EPOCH, _FAILURES, _ERROR = "dagster_run", "last_epoch", "failures", "error"
_ERROR_LENGTH_MAX = 2_000


def check_spec(key: dg.AssetKey) -> dg.AssetCheckSpec:
    """The check as an asset declares it."""
    return dg.AssetCheckSpec(
        CHECK,
        asset=key,
        description="Fails when the recovery sensor no longer restarts the stream because its runs keep failing at the "
        "same epoch; while what the stream needs does not answer, or must be mended outside of the code (the sensor "
        "keeps retrying); and while its run waits for a pool slot that a finished run still holds. Passes with the "
        "next committed epoch.",
    )


def evaluation_passed(key: dg.AssetKey, epoch: Epoch) -> dg.AssetCheckEvaluation:
    """What a run logs when it has committed its first epoch."""
    return to_evaluation(result_passed(key, epoch))


def result_passed(key: dg.AssetKey, epoch: Epoch) -> dg.AssetCheckResult:
    """The check in the result of a run that has ended. `epoch` is the stream's newest."""
    return dg.AssetCheckResult(asset_key=key, check_name=CHECK, passed=True, metadata={_LAST_EPOCH: int(epoch)})


def show_pass(instance: dg.DagsterInstance, run_id: str, passed: dg.AssetCheckEvaluation) -> None:
    """Report that a run has passed the check once more, without the run, where a failure that came earlier hides it.

    Dagster shows the evaluation of a run in the place that it got when the run was created. So what the sensor has
    reported while the run waited, for a slot of a pool for example, would show for as long as the run lives.
    """
    latest = instance.get_latest_asset_check_evaluation_record(passed.asset_check_key)
    shown = None if latest is None or latest.run_id == run_id else latest.evaluation
    if isinstance(shown, dg.AssetCheckEvaluation) and not shown.passed:
        instance.report_runless_asset_event(passed)


def result_as_before(instance: dg.DagsterInstance, key: dg.AssetKey, epoch: Epoch) -> dg.AssetCheckResult:
    """The check in the result of a run that left the stream to a live one: it neither ends a failure nor begins one."""
    shown = latest_evaluation(instance, dg.AssetCheckKey(key, CHECK))
    if shown is None or shown.passed:
        return result_passed(key, epoch)
    return dg.AssetCheckResult(
        asset_key=key, check_name=CHECK, passed=False, description=shown.description, metadata=shown.metadata
    )


def evaluation_failed(key: dg.AssetKey, run: dg.DagsterRun, epoch: Epoch, gave_up: GaveUp) -> dg.AssetCheckEvaluation:
    """What the sensor reports when it has given up after this run. `epoch` is the newest committed one."""
    error = "died without an error" if gave_up.error is None else str(gave_up.error)[:_ERROR_LENGTH_MAX]
    what = f"{gave_up.failures} Dagster runs in a row" if gave_up.failures > 1 else "The last Dagster run"
    how = "failed with the same error" if gave_up.same else "failed or died"
    return _failure(
        key,
        run,
        epoch,
        f"{what} {how} in the epoch that follows epoch {epoch}, so the sensor no longer restarts the stream. All "
        f"before it is committed and can be read.\n\n"
        f"**What to do**: fix the cause, then materialize the asset by hand or deploy it with another `code_version`; "
        f"or roll back to an earlier epoch (run config `from_epoch`).\n\n"
        f"**The last error**: {_as_markdown(error)}",
        {_FAILURES: gave_up.failures, _ERROR: error},
    )


def evaluation_unavailable(
    key: dg.AssetKey, run: dg.DagsterRun, epoch: Epoch, unavailable: Unavailable
) -> dg.AssetCheckEvaluation:
    """What the sensor reports while something that the stream needs does not answer, or must be mended."""
    error = str(unavailable.error)[:_ERROR_LENGTH_MAX]
    runs = "1 Dagster run" if unavailable.failures == 1 else f"{unavailable.failures} Dagster runs in a row"
    if unavailable.error.cause is Cause.OUTSIDE:
        what, how = (
            "Something outside of the code must be mended",
            "mend what the error names; materialize to try at once",
        )
    else:
        what, how = "What the stream needs does not answer", "check what the error names"
    return _failure(
        key,
        run,
        epoch,
        f"{what}: {runs} failed after epoch {epoch}. Nothing is lost, and no attempt is used up: the sensor keeps "
        f"restarting the stream, next after {unavailable.wait_ms / 1000:g} s.\n\n"
        f"**What to do**: {how}.\n\n**The last error**: {_as_markdown(error)}",
        {_FAILURES: unavailable.failures, _ERROR: error},
    )


def evaluation_stuck(key: dg.AssetKey, run: dg.DagsterRun, epoch: Epoch, pool: PoolView) -> dg.AssetCheckEvaluation:
    """What the sensor reports when Dagster will never have a slot for a run."""
    why = f"run {', '.join(pool.ended)} has ended and still holds one" if pool.ended else "its limit is 0"
    return _failure(
        key,
        run,
        epoch,
        f"The Dagster run waits for a slot of the pool {pool.name!r} and will get none: {why}. Free it on "
        f"Dagster's page of the pool (Deployment, Concurrency), or raise the limit: dagster instance concurrency set "
        f"{pool.name} {pool.limit + 1}. limit={pool.limit}, held_by={list(pool.holders)}",
        {},
    )


def _as_markdown(error: str) -> str:
    """The error in a description, which Dagster shows as Markdown: a `<lambda>` would vanish as an unknown HTML tag.

    Not as a block of code: a long line of it makes the page wider than the window.
    """
    return error.replace("<", r"\<")


def _failure(
    key: dg.AssetKey, run: dg.DagsterRun, epoch: Epoch, description: str, figures: Mapping[str, int | str]
) -> dg.AssetCheckEvaluation:
    metadata = {_LAST_EPOCH: int(epoch), **figures, _RUN: dg.MetadataValue.dagster_run(run.run_id)}
    return dg.AssetCheckEvaluation(
        asset_key=key, check_name=CHECK, passed=False, description=description, metadata=metadata
    )


def report(instance: dg.DagsterInstance, run: dg.DagsterRun, evaluation: dg.AssetCheckEvaluation) -> bool:
    """Fail the stream's check, once for this run and description. False where the check shows them already."""
    latest = instance.get_latest_asset_check_evaluation_record(evaluation.asset_check_key)
    shown = None if latest is None else latest.evaluation
    if isinstance(shown, dg.AssetCheckEvaluation) and not shown.passed:
        about = shown.metadata.get(_RUN)
        if about is not None and about.value == run.run_id and shown.description == evaluation.description:
            return False
    instance.report_runless_asset_event(evaluation)
    return True
