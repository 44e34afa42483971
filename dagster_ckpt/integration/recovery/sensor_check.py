"""The check that every streaming asset has: `has_recovery_sensor`, a warning where no sensor restarts the stream.

A run evaluates it at its start and with its result. It compares the stream with the sensors of its code
location. A sensor that a person has stopped is there: Dagster shows it as stopped.
"""

from collections.abc import Iterable

import dagster as dg

from dagster_ckpt.integration.dagster_names import stream_name_of

CHECK = "has_recovery_sensor"

STREAMS = "dagster_ckpt/streams"
"""The sensor's metadata with the names of the streams that it restarts."""

_HISTORY_MAX = 20
"""Runs that have planned a check and not evaluated it: those that wait in Dagster's queue, at most a few."""

_MISSING = (
    "No recovery sensor of this code location watches the stream: when its run, its process or its host dies, it stays "
    "down until you start it again. Declare the stream with build_streaming_definitions(assets=[...]), or add "
    "build_recovery_sensor([...]) to the sensors of your dg.Definitions."
)
_NO_LOCATION = "The run was not started from a code location, as with dg.materialize: nothing restarts such a run."


def sensor_check_spec(key: dg.AssetKey) -> dg.AssetCheckSpec:
    """The check as an asset declares it."""
    return dg.AssetCheckSpec(
        CHECK,
        asset=key,
        description="Warns when no recovery sensor of the code location watches the stream: it would not be restarted "
        "after a crash. Evaluated by each Dagster run of the stream.",
    )


def sensor_check(context: dg.AssetExecutionContext) -> dg.AssetCheckResult:
    """The check of the stream whose step this is."""
    key: dg.AssetKey = context.asset_key
    sensors = _sensors(context)
    if sensors is None:
        return _result(key, _NO_LOCATION, passed=True)
    watching = sorted(sensor.name for sensor in sensors if is_watched(key, [sensor]))
    if not watching:
        return _result(key, _MISSING, passed=False)
    return _result(key, f"Restarted after a crash by the sensor {', '.join(watching)}, while it is on.", passed=True)


def _result(key: dg.AssetKey, description: str, *, passed: bool) -> dg.AssetCheckResult:
    return dg.AssetCheckResult(
        asset_key=key, check_name=CHECK, passed=passed, severity=dg.AssetCheckSeverity.WARN, description=description
    )


def is_watched(key: dg.AssetKey, sensors: Iterable[dg.SensorDefinition]) -> bool:
    """Whether one of these sensors is a recovery sensor of the stream with this asset key."""
    name = stream_name_of(key)
    watched = (sensor.metadata.get(STREAMS) for sensor in sensors)
    return any(isinstance(streams, dg.JsonMetadataValue) and name in list(streams.value or ()) for streams in watched)


def to_evaluation(result: dg.AssetCheckResult) -> dg.AssetCheckEvaluation:
    """A check's result as an event: of a step that has not ended, or without a run."""
    assert result.asset_key is not None
    assert result.check_name is not None
    return dg.AssetCheckEvaluation(
        asset_key=result.asset_key,
        check_name=result.check_name,
        passed=result.passed,
        severity=result.severity,
        description=result.description,
        metadata=result.metadata,
    )


def latest_evaluation(instance: dg.DagsterInstance, key: dg.AssetCheckKey) -> dg.AssetCheckEvaluation | None:
    """The newest evaluation of a check that Dagster has stored, whatever runs have planned it since."""
    history = instance.event_log_storage.get_asset_check_execution_history(key, limit=_HISTORY_MAX)
    evaluations = (record.evaluation for record in history)
    return next((each for each in evaluations if isinstance(each, dg.AssetCheckEvaluation)), None)


def _sensors(context: dg.AssetExecutionContext) -> Iterable[dg.SensorDefinition] | None:
    """The sensors of the code location; None for a run that belongs to none."""
    try:
        return list(context.repository_def.sensor_defs)
    except Exception as error:
        if type(error).__name__ != "CheckError":  # of a module that is not public
            raise
        return None
