"""The check `has_recovery_sensor`: which streams a location's sensors restart."""

from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest
from dagster_pyspark import LazyPySparkResource
from pyspark.sql import SparkSession

from dagster_ckpt import (
    CheckpointCoordinatorResource,
    Stream,
    build_recovery_sensor,
    build_streaming_definitions,
    streaming_asset,
)
from dagster_ckpt.integration.recovery.sensor_check import sensor_check, to_evaluation
from dagster_ckpt.integration.step import step

RESOURCES: dict[str, Any] = {
    "checkpoints": CheckpointCoordinatorResource(url="file:///tmp/nowhere"),
    "spark": LazyPySparkResource(spark_config={"spark.master": "local[1]"}),
}


@streaming_asset
def a(spark: SparkSession) -> Stream:
    raise NotImplementedError


@streaming_asset(key_prefix="eu")
def b(spark: SparkSession) -> Stream:
    raise NotImplementedError


@dg.sensor(job_name="a_job")
def another(context: dg.SensorEvaluationContext) -> None: ...


def check_in(definitions: dg.Definitions, key: dg.AssetKey = a.key) -> dg.AssetCheckResult:
    context: Any = SimpleNamespace(asset_key=key, repository_def=definitions.get_repository_def())
    return sensor_check(context)


def test_a_stream_that_a_sensor_watches_passes() -> None:
    plain = dg.Definitions([a, b], sensors=[build_recovery_sensor([a, b])], resources=RESOURCES)
    for definitions in (plain, build_streaming_definitions([a, b], **RESOURCES)):
        for key in (a.key, b.key):
            result = check_in(definitions, key)
            assert result.passed
            assert result.description == "Restarted after a crash by the sensor streaming_recovery, while it is on."


@pytest.mark.parametrize("sensors", [[], [build_recovery_sensor([b])]], ids=["no sensor", "not of this stream"])
def test_a_stream_that_no_sensor_watches_is_a_warning_that_says_what_to_do(sensors: list[Any]) -> None:
    definitions = dg.Definitions([a, b], sensors=sensors, resources=RESOURCES)
    result = check_in(definitions)
    assert (result.passed, result.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert "build_recovery_sensor" in (result.description or "")
    logged = to_evaluation(result)
    assert (logged.passed, logged.severity, logged.description) == (False, result.severity, result.description)
    assert logged.asset_check_key == dg.AssetCheckKey(a.key, "has_recovery_sensor")


def test_an_ordinary_sensor_restarts_no_stream() -> None:
    alone = dg.Definitions([a], sensors=[another], jobs=[dg.define_asset_job("a_job", [a])], resources=RESOURCES)
    assert not check_in(alone).passed


def test_a_run_outside_of_a_code_location_passes_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_work(*arguments: object) -> dg.MaterializeResult[Any]:
        names = ("no_crash_loop", "is_live", "applies_changes")
        earlier = [dg.AssetCheckResult(asset_key=a.key, check_name=name, passed=True) for name in names]
        return dg.MaterializeResult(asset_key=a.key, check_results=earlier)

    monkeypatch.setattr(step, "_run_in_turn", no_work)
    given = {**RESOURCES, "spark": dg.ResourceDefinition.none_resource()}
    with dg.DagsterInstance.ephemeral() as instance:
        result = dg.materialize([a], resources=given, instance=instance)
    found = {evaluation.check_name: evaluation for evaluation in result.get_asset_check_evaluations()}
    assert found.keys() == {"no_crash_loop", "is_live", "applies_changes", "has_recovery_sensor"}
    assert found["has_recovery_sensor"].passed
    assert "not started from a code location" in (found["has_recovery_sensor"].description or "")
