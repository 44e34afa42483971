"""What Dagster says about the newest run of a stream, as plain values."""

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dagster as dg

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.ids import Term
from dagster_ckpt.integration.dagster_names import (
    ATTEMPT_TAG,
    CODE_VERSION_TAG,
    EPOCH_TAG,
    LAUNCHED_FOR_TAG,
    MAY_FENCE_TAG,
    SAME_ERROR_TAG,
    STREAM_TAG,
    TURN_TAG,
    UNAVAILABLE_TAG,
    UNFIT_TAG,
    unfit,
)
from dagster_ckpt.integration.declared.run_config import op_config
from dagster_ckpt.integration.recovery.crash_loop import RunError, SameError
from dagster_ckpt.integration.recovery.decision import RunState, RunView
from dagster_ckpt.integration.recovery.stream_status import StreamStatus
from dagster_ckpt.runtime.run_mode import Mode

_NO_WORD = {
    # The process was ended from outside: nobody knows why.
    "ChildProcessCrashException",
    "DagsterExecutionInterruptedError",
    "KeyboardInterrupt",
    # Another writer is at work.
    "FencedError",
}
"""Errors that say nothing of the stream: starting it again is the right answer to each of them."""


_MASTER_IS_UNAVAILABLE = re.compile(
    # The scheduler backend of a standalone cluster; and what raises in the driver, whose context it stops in a thread
    # of its own, depends on how far the driver had come.
    r"All masters are unresponsive"
    r"|stopped SparkContext.*was stopped at:\s+org\.apache\.spark\.SparkContext\$\$anon"
    r'|"org\.apache\.spark\.SparkEnv\$\.get\(\)" is null'
    # Kubernetes and YARN, from within the constructor of the context.
    r"|calling None\.org\.apache\.spark\.api\.java\.JavaSparkContext\b.*"
    r"(?:ConnectException|UnknownHostException|SocketTimeoutException|NoRouteToHostException|ConnectTimeoutException"
    r"|Connection refused|Connection timed out|Failed to connect)",
    re.DOTALL,
)
"""What Spark raises where its master, or what stands for one, cannot be reached."""


def run_error(instance: dg.DagsterInstance, run: dg.DagsterRun, step: str) -> RunError | None:
    """The error that ended this step of the run, or the run itself before it came to that. None: there is no word."""
    wanted = {dg.DagsterEventType.STEP_FAILURE, dg.DagsterEventType.RUN_FAILURE}
    found: RunError | None = None
    for record in instance.get_records_for_run(run.run_id, of_type=wanted).records:
        event = record.event_log_entry.dagster_event
        if event is None:
            continue
        own_step = event.event_type is dg.DagsterEventType.STEP_FAILURE and event.step_key == step
        if own_step or event.event_type is dg.DagsterEventType.RUN_FAILURE:
            found = _read(getattr(event.event_specific_data, "error", None)) if own_step or found is None else found
    return found


def _read(error: Any) -> RunError | None:
    """Dagster's record of an exception: `cls_name`, `message` (which repeats the class) and `cause`."""
    if error is None:
        return None
    while error.cause is not None and str(error.cls_name).startswith("Dagster"):
        error = error.cause  # Dagster's own wrapping says only where
    kind = str(error.cls_name or "").rpartition(".")[2]
    if kind in _NO_WORD:
        return None
    message = str(error.message).strip()
    unavailable = kind == "StoreUnavailableError" or _MASTER_IS_UNAVAILABLE.search(message) is not None
    return RunError(kind, message.partition(f"{kind}: ")[2] or message, unavailable)


_LOG = logging.getLogger(__name__)

WILL_RETRY_TAG = "dagster/will_retry"
"""Dagster's own word that its run retries will take a failed run on."""

_RETRY_NUMBER_TAG = "dagster/retry_number"
"""On a run that Dagster's own run retries have launched. One that a person re-executes goes without."""

_STATES: Mapping[dg.DagsterRunStatus, RunState] = {
    dg.DagsterRunStatus.QUEUED: RunState.WAITING,
    dg.DagsterRunStatus.MANAGED: RunState.WAITING,
    dg.DagsterRunStatus.NOT_STARTED: RunState.LAUNCHED,
    dg.DagsterRunStatus.STARTING: RunState.LAUNCHED,
    dg.DagsterRunStatus.STARTED: RunState.STARTED,
    dg.DagsterRunStatus.SUCCESS: RunState.SUCCEEDED,
    dg.DagsterRunStatus.FAILURE: RunState.FAILED,
    dg.DagsterRunStatus.CANCELING: RunState.CANCELED,
    dg.DagsterRunStatus.CANCELED: RunState.CANCELED,
}

_ON_THEIR_WAY = {RunState.WAITING, RunState.LAUNCHED, RunState.STARTED}
_UNFINISHED = [status for status, state in _STATES.items() if state in _ON_THEIR_WAY]
_UNFINISHED_MAX = 1_000


@dataclass(frozen=True)
class StreamAsset:
    """A streaming asset as the sensor knows it: its stream's name, its op, the job that runs it alone, and its pool."""

    key: dg.AssetKey
    stream: str
    op_name: str
    job_name: str
    mode: Mode
    pool: str | None = None


def unfinished_runs(instance: dg.DagsterInstance) -> Sequence[dg.RunRecord]:
    """Every Dagster run that waits or works: asked for once a tick, for all streams."""
    return instance.get_run_records(dg.RunsFilter(statuses=_UNFINISHED), limit=_UNFINISHED_MAX)


def newest_run(
    instance: dg.DagsterInstance, asset: StreamAsset, unfinished: Sequence[dg.RunRecord], lease_run_id: str | None
) -> dg.RunRecord | None:
    """The Dagster run whose fate is the stream's.

    That is the run which the newest term's lease names while Dagster has it unfinished; else the youngest of the
    asset's last run and those on their way. Dagster's `last_run_id` alone will not do: any event claims it.
    """
    named = None if lease_run_id is None else instance.get_run_record_by_id(lease_run_id)
    if named is not None and not named.dagster_run.is_finished:
        return named
    on_their_way = [record for record in unfinished if _works_on(record.dagster_run, asset)]
    candidates = [record for record in (named, _last_run(instance, asset.key), *on_their_way) if record is not None]
    youngest = max(candidates, key=lambda record: record.storage_id, default=None)
    if named is not None and youngest is not None and youngest.dagster_run.is_finished:
        # A second run that was turned away beside a live one ended before it: the live one's end is the newer word.
        return max(named, youngest, key=lambda record: record.end_time or 0)
    return youngest


def run_view(instance: dg.DagsterInstance, run: dg.DagsterRun, asset: StreamAsset, status: StreamStatus) -> RunView:
    """The run as the decision sees it; `same_ms` is for the sensor to fill in."""
    state, lease = _STATES[run.status], status.lease
    opened = lease is not None and lease.holder.dagster_run_id == run.run_id
    reached, passed_over, others_done = True, False, False
    if state in {RunState.STARTED, RunState.FAILED} and not opened and not _begins_with(run, asset):
        reached, passed_over = _step(instance, run, asset)
    if state is RunState.STARTED and opened and lease is not None and lease.closed is not None:
        others_done = _others_done(instance, run, asset)
    config = op_config(run.run_config, asset.op_name)
    mode, from_epoch = config.get("mode"), config.get("from_epoch")
    by_the_sensor = {} if _is_re_executed(run) else run.tags
    obeyed = opened or status.has_rolled_back_for(run.root_run_id or run.run_id)
    return RunView(
        state=state,
        mode=asset.mode if mode is None else Mode(str(mode)),
        attempt=_number(by_the_sensor, ATTEMPT_TAG) or 0,
        opened=opened,
        one_process=run.job_name == asset.job_name,
        others_done=others_done,
        reached=reached,
        passed_over=passed_over,
        unfit=run.tags.get(UNFIT_TAG) == unfit(run.run_id, asset.stream),
        left_to_dagster=run.tags.get(WILL_RETRY_TAG) == "true",
        not_rolled_back=from_epoch if isinstance(from_epoch, int) and not obeyed else None,
        error=run_error(instance, run, asset.op_name) if state is RunState.FAILED else None,
        before=SameError.read(by_the_sensor.get(SAME_ERROR_TAG, "")),
        unavailable=_number(by_the_sensor, UNAVAILABLE_TAG) or 0,
    )


def tag_run(instance: dg.DagsterInstance, run_id: str, tags: Mapping[str, str]) -> None:
    """Tell the sensor something about a run at work. It is advice: a Dagster that is busy must not end the run."""
    try:
        instance.add_run_tags(run_id, tags)
    except Exception as error:  # noqa: BLE001 (whatever Dagster's storage raises)
        _LOG.warning("Dagster did not take the tags of its run. run=%s, tags=%s, error=%r", run_id, dict(tags), error)


def instance_id(instance: dg.DagsterInstance) -> str:
    """What tells this Dagster instance from every other. Raises `InvalidPipelineError` for a storage that has no id."""
    found = getattr(instance.run_storage, "get_run_storage_id", None)
    if found is None:
        raise InvalidPipelineError(
            "this Dagster instance cannot be told from another, so nobody could say whose a stream is: use a run "
            f"storage of Dagster's own (SQLite, PostgreSQL, MySQL). run_storage={type(instance.run_storage).__name__}"
        )
    return str(found())


def may_fence_tag(run: dg.DagsterRun) -> Term | None:
    """The one term that the sensor lets this run fence without waiting."""
    term = _number(run.tags, MAY_FENCE_TAG)
    return None if term is None else Term(term)


def location_of(run: dg.DagsterRun) -> str:
    """The code location that the run came from: information for people, empty for a run from a script."""
    origin = run.remote_job_origin
    return "" if origin is None else origin.repository_origin.code_location_origin.location_name


def epoch_at_launch(run: dg.DagsterRun) -> int | None:
    """The newest epoch committed when the sensor launched this run; None for a run that it did not launch."""
    return _number(run.tags, EPOCH_TAG)


def code_version_of(run: dg.DagsterRun) -> str | None:
    """The asset's code version that the run was launched for, empty for none; None where nobody has said."""
    return run.tags.get(LAUNCHED_FOR_TAG, run.tags.get(CODE_VERSION_TAG))


def _is_re_executed(run: dg.DagsterRun) -> bool:
    """Whether a person has started this run from an earlier one, whose tags Dagster has copied to it."""
    return run.parent_run_id is not None and _RETRY_NUMBER_TAG not in run.tags


def _last_run(instance: dg.DagsterInstance, key: dg.AssetKey) -> dg.RunRecord | None:
    records = instance.get_asset_records([key])
    run_id = records[0].asset_entry.last_run_id if records else None
    return None if run_id is None else instance.get_run_record_by_id(run_id)


def _begins_with(run: dg.DagsterRun, asset: StreamAsset) -> bool:
    """Whether no step comes before the stream's: the run has no other, or checks of its table at most."""
    return run.job_name == asset.job_name or run.asset_selection == {asset.key}


def _works_on(run: dg.DagsterRun, asset: StreamAsset) -> bool:
    return (
        run.job_name == asset.job_name
        or run.tags.get(STREAM_TAG) == asset.stream
        or asset.key in (run.asset_selection or ())
    )


def _step(instance: dg.DagsterInstance, run: dg.DagsterRun, asset: StreamAsset) -> tuple[bool, bool]:
    """Whether the stream's step has begun to work, and whether it never will because another failed."""
    wanted = {dg.DagsterEventType.STEP_START, dg.DagsterEventType.STEP_FAILURE}
    events = [
        event
        for record in instance.get_records_for_run(run.run_id, of_type=wanted).records
        if (event := record.event_log_entry.dagster_event) is not None
    ]
    started = any(event.step_key == asset.op_name for event in events)
    failed = any(event.event_type is dg.DagsterEventType.STEP_FAILURE for event in events)
    its_turn = run.tags.get(TURN_TAG, asset.op_name) == asset.op_name
    return started and its_turn, failed and not started


def _others_done(instance: dg.DagsterInstance, run: dg.DagsterRun, asset: StreamAsset) -> bool:
    """Whether no step but the stream's is unfinished. False where Dagster does not say what steps there are."""
    if run.execution_plan_snapshot_id is None:
        return False
    planned = set(instance.get_execution_plan_snapshot(run.execution_plan_snapshot_id).step_keys_to_execute)
    wanted = {
        dg.DagsterEventType.STEP_SUCCESS,
        dg.DagsterEventType.STEP_FAILURE,
        dg.DagsterEventType.STEP_SKIPPED,
    }
    records = instance.get_records_for_run(run.run_id, of_type=wanted).records
    return planned <= {asset.op_name, *(record.event_log_entry.step_key for record in records)}


def _number(tags: Mapping[str, str], tag: str) -> int | None:
    """A tag of ours as a number. People can write tags too: what is no number is as good as none."""
    text = tags.get(tag, "")
    return int(text) if text.isdecimal() else None
