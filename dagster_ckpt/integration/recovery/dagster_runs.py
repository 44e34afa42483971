"""The newest Dagster run of a stream, as plain values, and the pool that it may wait for.

Where a pool is limited by op, which is Dagster's default, a step holds a slot from its start to its end. A worker that
was killed frees nothing, and Dagster keeps the next run in its queue without reporting why.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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
from dagster_ckpt.integration.recovery.stream_status import StreamStatus
from dagster_ckpt.integration.recovery.stream_view import PoolView, RunState, RunView
from dagster_ckpt.runtime.run_mode import Mode

_NOT_THE_STREAMS = {
    # The process was ended from outside, for an unknown reason.
    "ChildProcessCrashException",
    "DagsterExecutionInterruptedError",
    "KeyboardInterrupt",
    # Another writer is live.
    "FencedError",
}
"""Errors that are not the stream's fault: the answer to each of them is to start it again."""


def run_error(instance: dg.DagsterInstance, run: dg.DagsterRun, step: str) -> RunError | None:
    """The error that ended this step of the run, or the run before the step began. None where none was reported."""
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
        error = error.cause  # Dagster's wrapper only names the place
    kind = str(error.cls_name or "").rpartition(".")[2]
    if kind in _NOT_THE_STREAMS:
        return None
    message = str(error.message).strip()
    return RunError.read(kind, message.partition(f"{kind}: ")[2] or message)


_LOG = logging.getLogger(__name__)

WILL_RETRY_TAG = "dagster/will_retry"
"""Set by Dagster on a failed run that its run retries will retry."""

_RETRY_NUMBER_TAG = "dagster/retry_number"
"""On a run that Dagster's run retries have launched. One that is re-executed by hand does not have it."""

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
UNFINISHED = [status for status, state in _STATES.items() if state in _ON_THEIR_WAY]
_UNFINISHED_MAX = 1_000


@dataclass(frozen=True)
class StreamAsset:
    """A streaming asset as the sensor sees it: its stream's name, its op, the job that runs it alone, and its pool."""

    key: dg.AssetKey
    stream: str
    op_name: str
    job_name: str
    mode: Mode
    pool: str | None = None


def unfinished_runs(instance: dg.DagsterInstance) -> Sequence[dg.RunRecord]:
    """Every queued or running Dagster run: queried once a tick, for all streams."""
    return instance.get_run_records(dg.RunsFilter(statuses=UNFINISHED), limit=_UNFINISHED_MAX)


@dataclass
class LastRuns:
    """The last Dagster run of each asset: queried once a tick for all streams, when the first of them needs it.

    A query for each would take most of a tick: with 50 streams that have ended, a second of it on SQLite.
    """

    instance: dg.DagsterInstance
    keys: Sequence[dg.AssetKey]
    _ids: Mapping[dg.AssetKey, str | None] | None = field(default=None, init=False)

    def of(self, key: dg.AssetKey) -> str | None:
        """The id of its last run; None where there is none."""
        if self._ids is None:
            records = self.instance.get_asset_records(list(self.keys))
            self._ids = {record.asset_entry.asset_key: record.asset_entry.last_run_id for record in records}
        return self._ids.get(key)


def newest_run(
    instance: dg.DagsterInstance,
    asset: StreamAsset,
    unfinished: Sequence[dg.RunRecord],
    last_runs: LastRuns,
    lease_run_id: str | None,
) -> dg.RunRecord | None:
    """The Dagster run that decides what happens to the stream.

    That is the run which the newest term's lease names while Dagster has it unfinished; else the youngest of the
    asset's last run and the unfinished ones. Dagster's `last_run_id` alone is not enough: any event sets it. A run that
    found the stream live, or that another has followed, is not the stream's, however long its other steps take.
    """
    named = None if lease_run_id is None else instance.get_run_record_by_id(lease_run_id)
    if named is not None and not named.dagster_run.is_finished:
        return named
    on_their_way = [record for record in unfinished if works_on(record.dagster_run, asset)]
    last_id = last_runs.of(asset.key)
    # After most ends the lease still names the last run.
    last = None if last_id in (None, lease_run_id) else instance.get_run_record_by_id(last_id)
    candidates = [record for record in (named, last, *on_their_way) if record is not None]
    youngest_first = sorted(candidates, key=lambda record: record.storage_id, reverse=True)
    if named is None:
        return next(iter(youngest_first), None)
    # A run whose step has succeeded, although the lease names another, has left the stream to it.
    youngest = next(
        each
        for each in youngest_first
        if each.storage_id == named.storage_id or not _has_left(instance, each.dagster_run, asset)
    )
    if youngest.dagster_run.is_finished:
        # A second run that was refused beside a live one ended first: the live one's end is the newer fact.
        return max(named, youngest, key=lambda record: record.end_time or 0)
    return youngest


def runs_on_their_way(asset: StreamAsset, unfinished: Sequence[dg.RunRecord]) -> list[str]:
    """The ids of the unfinished Dagster runs that work on the stream, or will."""
    return [record.dagster_run.run_id for record in unfinished if works_on(record.dagster_run, asset)]


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


def full_pool(instance: dg.DagsterInstance, asset: StreamAsset, run_id: str) -> PoolView | None:
    """The asset's pool if it has no slot for this run; None if it has one, or there is no limit.

    First frees the slots that finished runs hold for the asset's step. A crash in between leaves that to the next tick.
    """
    storage = instance.event_log_storage
    if asset.pool is None or not storage.supports_global_concurrency_limits:
        return None
    for slot in storage.get_concurrency_info(asset.pool).claimed_slots:
        if slot.step_key == asset.op_name and slot.run_id != run_id and _has_ended(instance, slot.run_id):
            storage.free_concurrency_slots_for_run(slot.run_id)
    info = storage.get_concurrency_info(asset.pool)
    holders = [slot.run_id for slot in info.claimed_slots]
    if info.limit is None or len(holders) < info.limit or run_id in holders:
        return None
    ended = tuple(holder for holder in holders if _has_ended(instance, holder))
    return PoolView(asset.pool, info.limit, tuple(holders), ended)


def _has_ended(instance: dg.DagsterInstance, run_id: str) -> bool:
    run = instance.get_run_by_id(run_id)
    return run is None or run.is_finished


def tag_run(instance: dg.DagsterInstance, run_id: str, tags: Mapping[str, str]) -> None:
    """Tag a run at work for the sensor. Tags are advice: a busy Dagster database must not fail the run."""
    try:
        instance.add_run_tags(run_id, tags)
    except Exception as error:  # noqa: BLE001 (whatever Dagster's storage raises)
        _LOG.warning("Dagster did not store the run's tags. run=%s, tags=%s, error=%r", run_id, dict(tags), error)


def instance_id(instance: dg.DagsterInstance) -> str:
    """The unique id of this Dagster instance. Raises `InvalidPipelineError` for a run storage without one."""
    found = getattr(instance.run_storage, "get_run_storage_id", None)
    if found is None:
        raise InvalidPipelineError(
            "this Dagster instance has no unique id, so a stream's owner cannot be identified: use one of Dagster's "
            f"run storages (SQLite, PostgreSQL, MySQL). run_storage={type(instance.run_storage).__name__}"
        )
    return str(found())


def may_fence_tag(run: dg.DagsterRun) -> Term | None:
    """The one term that the sensor allows this run to fence without waiting."""
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
    """The asset's code version that the run was launched for; None where it is unknown."""
    return run.tags.get(LAUNCHED_FOR_TAG, run.tags.get(CODE_VERSION_TAG))


def _is_re_executed(run: dg.DagsterRun) -> bool:
    """Whether this run was re-executed by hand from an earlier one, whose tags Dagster has copied to it."""
    return run.parent_run_id is not None and _RETRY_NUMBER_TAG not in run.tags


def _begins_with(run: dg.DagsterRun, asset: StreamAsset) -> bool:
    """Whether the stream's step is the first: the run has no other steps, or only checks of its table."""
    return run.job_name == asset.job_name or run.asset_selection == {asset.key}


def _has_left(instance: dg.DagsterInstance, run: dg.DagsterRun, asset: StreamAsset) -> bool:
    """Whether the stream's step of this run has ended with success."""
    records = instance.get_records_for_run(run.run_id, of_type={dg.DagsterEventType.STEP_SUCCESS}).records
    return any(record.event_log_entry.step_key == asset.op_name for record in records)


def works_on(run: dg.DagsterRun, asset: StreamAsset) -> bool:
    """Whether the stream's step is one of this run's."""
    return (
        run.job_name == asset.job_name
        or run.tags.get(STREAM_TAG) == asset.stream
        or asset.key in (run.asset_selection or ())
    )


def _step(instance: dg.DagsterInstance, run: dg.DagsterRun, asset: StreamAsset) -> tuple[bool, bool]:
    """Whether the stream's step has begun, and whether it never will because another failed."""
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
    """Whether all other steps are finished. False where Dagster does not record which steps there are."""
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
    """One of our tags as a number; None where it is missing, or is no number (people can write tags too)."""
    text = tags.get(tag, "")
    return int(text) if text.isdecimal() else None
