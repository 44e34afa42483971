"""What the recovery sensor does in Dagster: declares a dead run failed, and requests the next."""

from collections.abc import Sequence
from dataclasses import dataclass

import dagster as dg

from dagster_ckpt.clock import Clock
from dagster_ckpt.integration.dagster_names import (
    ATTEMPT_TAG,
    EPOCH_TAG,
    LAUNCHED_FOR_TAG,
    MAY_FENCE_TAG,
    NOT_ROLLED_BACK_TAG,
    REASON_TAG,
    REBUILD_TAG,
    REPLACES_TAG,
    SAME_ERROR_TAG,
    STREAM_TAG,
    UNAVAILABLE_TAG,
    rebuild_request,
)
from dagster_ckpt.integration.declared.run_config import OF_A_REBUILD, ONCE, op_config
from dagster_ckpt.integration.declared.stream_options import StreamOptions
from dagster_ckpt.integration.recovery.dagster_runs import WILL_RETRY_TAG, StreamAsset, works_on
from dagster_ckpt.integration.recovery.decision import Launch
from dagster_ckpt.integration.recovery.stream_status import StreamStatus

_REASON_LENGTH_MAX = 250
"""A tag is for people to read."""


@dataclass(frozen=True)
class Watched:
    """A stream that the sensor watches. `code_version` is the asset's in the sensor's code, or `NO_VERSION`."""

    asset: StreamAsset
    options: StreamOptions
    code_version: str


def declare_failed(instance: dg.DagsterInstance, run: dg.DagsterRun, reason: str) -> bool:
    """Report a dead run to Dagster as failed. False where no relaunch must follow.

    That is where the run ended while it was judged, and where Dagster's run retries retry it.
    """
    now = instance.get_run_by_id(run.run_id)
    if now is None or now.is_finished:
        return False
    instance.report_run_failed(now, f"The recovery sensor found this run dead: {reason}.")
    after = instance.get_run_by_id(run.run_id)
    return after is not None and after.tags.get(WILL_RETRY_TAG) != "true"


def run_request(
    watched: Watched, launch: Launch, run: dg.DagsterRun | None, status: StreamStatus, clock: Clock, reason: str
) -> dg.RunRequest:
    """The next run of the stream, in place of `run`; `reason` is why.

    It has the config of its op, without what was requested for one run only, and our tags. Its run key ensures that no
    run is replaced twice, even if the sensor crashes in between.
    """
    asset, options = watched.asset, watched.options
    config = {name: value for name, value in _config(run, asset).items() if name not in ONCE}
    if launch.mode is options.mode:
        config.pop("mode", None)
    else:
        config["mode"] = str(launch.mode)
    tags = {**options.run_tags, STREAM_TAG: asset.stream, LAUNCHED_FOR_TAG: watched.code_version}
    if run is not None and (request := unfinished_rebuild(run, asset, status)) is not None:
        tags[REBUILD_TAG] = request
    else:
        config = {name: value for name, value in config.items() if name not in OF_A_REBUILD}
    if launch.attempt or launch.unavailable:
        tags[EPOCH_TAG] = str(status.newest_committed)
        if run is not None:
            tags |= {REPLACES_TAG: run.run_id, REASON_TAG: reason[:_REASON_LENGTH_MAX]}
    if launch.attempt:
        tags[ATTEMPT_TAG] = str(launch.attempt)
    if launch.unavailable:
        tags[UNAVAILABLE_TAG] = str(launch.unavailable)
    if launch.before is not None:
        tags[SAME_ERROR_TAG] = launch.before.write()
    if launch.not_rolled_back is not None:
        tags[NOT_ROLLED_BACK_TAG] = str(launch.not_rolled_back)
    if launch.may_fence is not None:
        tags[MAY_FENCE_TAG] = str(launch.may_fence)
    return dg.RunRequest(
        run_key=f"{asset.stream} first {clock.unique()}" if run is None else f"{asset.stream} after {run.run_id}",
        job_name=asset.job_name,
        run_config={"ops": {asset.op_name: {"config": config}}} if config else {},
        tags=tags,
    )


def unfinished_rebuild(run: dg.DagsterRun, asset: StreamAsset, status: StreamStatus) -> str | None:
    """Who asked for the rebuild that this run is for, where it has not taken over yet; else None."""
    request = rebuild_request(run) if _config(run, asset).get("rebuild") else None
    return None if request is None or status.has_rolled_back_for(request) else request


def rebuilding_run(
    unfinished: Sequence[dg.RunRecord], asset: StreamAsset, status: StreamStatus, judged: str | None
) -> dg.DagsterRun | None:
    """The unfinished run that rebuilds the stream, unless it is the one that was judged as the stream's own."""
    runs = [record.dagster_run for record in unfinished if works_on(record.dagster_run, asset)]
    return next(
        (run for run in runs if run.run_id != judged and unfinished_rebuild(run, asset, status) is not None), None
    )


def _config(run: dg.DagsterRun | None, asset: StreamAsset) -> dict[str, object]:
    return {} if run is None else dict(op_config(run.run_config, asset.op_name))
