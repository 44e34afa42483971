"""A job for each stream's checks, with the sensor or the schedule that launches it. The stream is not touched."""

import functools
import inspect
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dagster as dg

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.history import CheckpointStore
from dagster_ckpt.ids import EMPTY
from dagster_ckpt.integration.dagster_names import stream_name_of
from dagster_ckpt.integration.declared.resources import CheckpointCoordinatorResource
from dagster_ckpt.integration.declared.streaming_function import Job, require_streaming
from dagster_ckpt.integration.epoch_checks import EpochChecks, stream_key_of
from dagster_ckpt.integration.reading.loaded_epochs import epochs_loaded_by
from dagster_ckpt.integration.recovery.dagster_runs import UNFINISHED
from dagster_ckpt.runtime.run_mode import Mode

TICK_SECONDS = 8
"""A little less than two loops of Dagster's daemon."""


@dataclass(frozen=True)
class CheckDefinitions:
    """What a code location needs to run the checks of its streams."""

    checks: Sequence[dg.AssetChecksDefinition]
    sensors: Sequence[dg.SensorDefinition]
    schedules: Sequence[dg.ScheduleDefinition]


def check_definitions(
    assets: Sequence[dg.AssetsDefinition],
    checks: Sequence[dg.AssetChecksDefinition | EpochChecks],
    name: str | None,
) -> CheckDefinitions:
    """The checks and what launches them.

    A check that is not in `epoch_checks` runs after every 10 epochs if its stream is continuous; else in the stream's
    own Dagster runs, when the stream has ended. Raises `InvalidPipelineError` for a check of no stream among `assets`.
    """
    streams = {asset.key: asset for asset in assets}
    sensors, schedules = [], []
    for job_name, asset, group in _groups(streams, checks, name):
        stream = stream_name_of(asset.key)
        job = dg.define_asset_job(
            job_name,
            selection=dg.AssetSelection.checks(*(key for check in group.checks for key in check.check_keys)),
            executor_def=dg.in_process_executor,
            description=f"Checks the newest epoch of the stream {stream}, and does not touch the stream.",
        )
        if group.cron is not None:
            status = dg.DefaultScheduleStatus.RUNNING
            schedules.append(dg.ScheduleDefinition(job=job, cron_schedule=group.cron, default_status=status))
        else:
            sensors.append(_sensor(job, job_name, stream, group.every_epochs))
    given = [check for each in checks for check in (each.checks if isinstance(each, EpochChecks) else [each])]
    return CheckDefinitions([with_epochs_named(check) for check in given], sensors, schedules)


def _groups(
    streams: Mapping[dg.AssetKey, dg.AssetsDefinition],
    checks: Sequence[dg.AssetChecksDefinition | EpochChecks],
    name: str | None,
) -> Iterator[tuple[str, dg.AssetsDefinition, EpochChecks]]:
    """Each job's name, its stream, and the checks of it that run together."""
    plain = tuple(each for each in checks if not isinstance(each, EpochChecks))
    continuous = tuple(each for each in plain if _stream(streams, each)[1] is Mode.CONTINUOUS)
    jobs: dict[dg.AssetKey, int] = {}
    for group in [EpochChecks(continuous), *(each for each in checks if isinstance(each, EpochChecks))]:
        by_stream: dict[dg.AssetKey, list[dg.AssetChecksDefinition]] = {}
        for check in group.checks:
            by_stream.setdefault(_stream(streams, check)[0].key, []).append(check)
        for key, together in by_stream.items():
            jobs[key] = jobs.get(key, 0) + 1
            number = "" if jobs[key] == 1 else str(jobs[key])
            job_name = "_".join(part for part in (name, streams[key].op.name, "checks", number, "job") if part)
            yield job_name, streams[key], EpochChecks(tuple(together), group.every_epochs, group.cron)


def _stream(
    streams: Mapping[dg.AssetKey, dg.AssetsDefinition], check: dg.AssetChecksDefinition
) -> tuple[dg.AssetsDefinition, Mode]:
    asset = streams.get(stream_key_of(check))
    if asset is None:
        raise InvalidPipelineError(
            "checks= accepts only checks of the streams in assets=: pass checks of other assets to "
            f"dg.Definitions(asset_checks=[...]). check={check.node_def.name}, "
            f"asset={stream_key_of(check).to_user_string()}"
        )
    return asset, require_streaming(asset).options.mode


def _sensor(job: Job, job_name: str, stream: str, every_epochs: int) -> dg.SensorDefinition:
    @dg.sensor(
        name=f"{job_name.removesuffix('_job')}_sensor",
        job=job,
        minimum_interval_seconds=TICK_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"Launches {job_name} after every {every_epochs} epochs of the stream {stream}.",
    )
    def due(context: dg.SensorEvaluationContext, checkpoints: CheckpointCoordinatorResource) -> dg.SensorResult:
        return _evaluate(context, checkpoints.store(), stream, job_name, every_epochs)

    return due


def _evaluate(
    context: dg.SensorEvaluationContext, store: CheckpointStore, stream: str, job_name: str, every_epochs: int
) -> dg.SensorResult:
    """The cursor is how many epochs the stream had at the last launch. If it is lost, the checks run once more."""
    try:
        manifest = store.stream(stream).manifest()
    except InvalidPipelineError:
        manifest = None  # it was never opened
    if manifest is None or manifest.epoch == EMPTY:
        return dg.SensorResult(skip_reason="no epoch yet", cursor=context.cursor)
    epochs, last = manifest.statistics.total_epochs, context.cursor or ""
    left = int(last) + every_epochs - epochs if last.isdecimal() else 0
    if 0 < left <= every_epochs:
        return dg.SensorResult(skip_reason=f"{left} more epochs", cursor=context.cursor)
    filters = dg.RunsFilter(job_name=job_name, statuses=UNFINISHED)
    if context.instance.get_run_records(filters, limit=1):
        return dg.SensorResult(skip_reason="the last checks still run", cursor=context.cursor)
    return dg.SensorResult(run_requests=[dg.RunRequest()], cursor=str(epochs))


def with_epochs_named(checks: dg.AssetChecksDefinition) -> dg.AssetChecksDefinition:
    """The same checks. The metadata of their results gets `epoch`, or `epoch/<stream>` where they read several."""
    op = checks.op
    compute: Any = op.compute_fn  # what a decorator made of the user's function
    named = dg.OpDefinition(
        compute_fn=compute._replace(decorated_fn=_naming(compute.decorated_fn)),
        name=op.name,
        ins={each.name: dg.In.from_definition(each) for each in op.input_defs},
        outs={each.name: dg.Out.from_definition(each) for each in op.output_defs},
        description=op.description,
        config_schema=op.config_schema,
        required_resource_keys=op.required_resource_keys,
        tags=op.tags,
        retry_policy=op.retry_policy,
        pool=op.pool,
    )
    with warnings.catch_warnings():
        # Dagster includes its beta attributes, and warns any caller who passes them on.
        warnings.simplefilter("ignore", dg.BetaWarning)
        warnings.simplefilter("ignore", dg.PreviewWarning)
        return type(checks)(**{**checks.get_attributes_dict(), "node_def": named})


def _naming(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def check(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        return (_with_name(each) for each in result) if inspect.isgenerator(result) else _with_name(result)

    return check


def _with_name(result: Any) -> Any:
    if not isinstance(result, dg.AssetCheckResult):
        return result
    epochs = _epochs()
    labels = {"epoch" if len(epochs) == 1 else f"epoch/{stream}": epoch for stream, epoch in epochs.items()}
    metadata = {label: dg.MetadataValue.int(epoch) for label, epoch in labels.items()}
    return result._replace(metadata={**metadata, **result.metadata})


def _epochs() -> dict[str, int]:
    try:
        context = dg.OpExecutionContext.get()
    except dg.DagsterInvariantViolationError:
        return {}  # called directly, in a test
    return epochs_loaded_by(context.run.run_id, str(context.op_handle))
