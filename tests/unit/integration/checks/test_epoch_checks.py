"""Checks of the user's: run against a committed epoch, by jobs of their own, and named in their results."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pandas as pd
import pyarrow as pa
import pytest
from dagster_pyspark import LazyPySparkResource
from pyspark.sql import SparkSession

from dagster_ckpt import (
    CheckpointCoordinatorResource,
    CheckpointStore,
    InvalidPipelineError,
    Stream,
    build_streaming_definitions,
    epoch_checks,
    streaming_asset,
)
from tests.unit.history.reading_streams import MadeStreams

pytestmark = pytest.mark.filterwarnings(
    # Dagster itself still reads what it has deprecated, where one resource holds another.
    "ignore:InitResourceContext.dagster_run is deprecated:DeprecationWarning"
)


@pytest.fixture
def streams(tmp_path: Path) -> Iterator[MadeStreams]:
    made = MadeStreams(tmp_path)
    yield made
    made.close()


def a_stream(name: str = "a", mode: str = "continuous") -> dg.AssetsDefinition:
    def never_called(spark: SparkSession) -> Stream:
        raise NotImplementedError

    asset: dg.AssetsDefinition = streaming_asset(name=name, mode=mode)(never_called)
    return asset


def a_check(rows: list[int] | None = None, **options: Any) -> dg.AssetChecksDefinition:
    @dg.asset_check(asset=options.pop("asset", "a"), **options)
    def has_rows(a: pd.DataFrame) -> dg.AssetCheckResult:
        if rows is not None:
            rows.append(len(a))
        return dg.AssetCheckResult(passed=len(a) < 3, metadata={"rows": len(a)})

    return has_rows


def location(streams: MadeStreams, *checks: Any, mode: str = "continuous", **options: Any) -> dg.Definitions:
    return build_streaming_definitions(
        [a_stream(mode=mode)],
        checkpoints=CheckpointCoordinatorResource(url=streams.url),
        spark=LazyPySparkResource(spark_config={}),
        checks=checks,
        **options,
    )


def steps_of(definitions: dg.Definitions, job: str) -> set[str]:
    return {node.name for node in definitions.resolve_job_def(job).nodes}


class Launcher:
    """The sensor of a job of checks, tick by tick."""

    def __init__(self, definitions: dg.Definitions, name: str = "a_checks_sensor") -> None:
        self.definitions, self.cursor = definitions, None
        self.instance = dg.DagsterInstance.ephemeral()
        self.sensor: Any = definitions.get_repository_def().get_sensor_def(name)

    def tick(self) -> tuple[int, str | None]:
        """How many runs it asks for, and why none."""
        with dg.build_sensor_context(
            instance=self.instance,
            cursor=self.cursor,
            definitions=self.definitions,
            resources={"checkpoints": (self.definitions.resources or {})["checkpoints"]},
        ) as context:
            result: Any = self.sensor(context)
        self.cursor = result.cursor
        return len(result.run_requests or []), result.skip_reason and result.skip_reason.skip_message


def test_the_job_of_a_continuous_stream_leaves_its_checks_to_a_job_of_their_own(streams: MadeStreams) -> None:
    definitions = location(streams, a_check())
    dg.Definitions.validate_loadable(definitions)
    assert steps_of(definitions, "a_job") == {"a"}
    assert steps_of(definitions, "a_checks_job") == {"a_has_rows"}


def test_an_available_now_run_checks_its_stream_at_its_end(streams: MadeStreams) -> None:
    definitions = location(streams, a_check(), mode="available_now")
    assert steps_of(definitions, "a_job") == {"a", "a_has_rows"}
    assert [sensor.name for sensor in definitions.sensors or []] == ["streaming_recovery"]


def test_a_check_of_a_continuous_stream_elsewhere_in_the_location_does_not_wait_behind_it(
    streams: MadeStreams,
) -> None:
    elsewhere = dg.Definitions(asset_checks=[a_check()])
    assert steps_of(dg.Definitions.merge(location(streams), elsewhere), "a_job") == {"a"}


def test_a_check_reads_the_newest_epoch_and_its_result_names_it(streams: MadeStreams) -> None:
    streams.source("a", epochs=2)
    rows: list[int] = []
    job = location(streams, a_check(rows)).resolve_job_def("a_checks_job")
    with dg.DagsterInstance.ephemeral() as instance:
        result = job.execute_in_process(instance=instance)
        assert instance.get_latest_materialization_event(dg.AssetKey("a")) is None
        assert instance.get_asset_records([dg.AssetKey("a")]) == [], "for the sensor it is no run of the stream"
    [evaluation] = result.get_asset_check_evaluations()
    assert evaluation.passed
    assert rows == [2]
    metadata = {label: value.value for label, value in evaluation.metadata.items()}
    assert metadata == {"rows": 2, "epoch": CheckpointStore(streams.url).stream("a").latest().epoch}


def test_a_result_names_the_epochs_of_all_streams_that_it_reads(streams: MadeStreams) -> None:
    a = streams.source("a", epochs=2)
    streams.reader("b", a).read(a)

    @dg.multi_asset_check(specs=[dg.AssetCheckSpec("agree", asset="a", additional_deps=["b"])])
    def agree(a: pa.Table, b: pa.Table) -> Iterator[dg.AssetCheckResult]:
        yield dg.AssetCheckResult(passed=a.num_rows == b.num_rows, check_name="agree", asset_key="a")

    both = dg.Definitions.merge(
        location(streams, agree), dg.Definitions([dg.AssetSpec("b").with_io_manager_key("epochs")])
    )
    with dg.DagsterInstance.ephemeral() as instance:
        result = both.resolve_job_def("a_checks_job").execute_in_process(instance=instance)
    [evaluation] = result.get_asset_check_evaluations()
    assert set(evaluation.metadata) == {"epoch/a", "epoch/b"}


def test_a_check_called_in_a_test_names_no_epoch(streams: MadeStreams) -> None:
    [check] = location(streams, a_check()).asset_checks or []
    result: Any = check(pd.DataFrame({"a": [1]}))
    assert result.passed
    assert set(result.metadata) == {"rows"}


def test_its_options_stay(streams: MadeStreams) -> None:
    given = a_check(blocking=True, description="few rows", pool="checks", retry_policy=dg.RetryPolicy(max_retries=2))
    [check] = location(streams, given).asset_checks or []
    assert list(check.check_specs) == list(given.check_specs)
    assert check.op.pool == "checks"
    assert check.op.retry_policy == dg.RetryPolicy(max_retries=2)


def test_a_blocking_check_holds_what_is_downstream_in_a_run_without_the_stream(streams: MadeStreams) -> None:
    streams.source("a", epochs=3)
    made: list[int] = []

    @dg.asset
    def report(a: pd.DataFrame) -> None:
        made.append(len(a))

    check = a_check(blocking=True)
    selection = dg.AssetSelection.assets(report) | dg.AssetSelection.checks(*check.check_keys)
    other = dg.Definitions([report], jobs=[dg.define_asset_job("report_job", selection)])
    job = dg.Definitions.merge(location(streams, check), other).resolve_job_def("report_job")
    with dg.DagsterInstance.ephemeral() as instance:
        assert not job.execute_in_process(instance=instance, raise_on_error=False).success
    assert made == []


def test_checks_run_with_the_first_epoch_and_then_after_every_so_many(streams: MadeStreams) -> None:
    launcher = Launcher(location(streams, epoch_checks([a_check()], every_epochs=3)))
    assert launcher.tick() == (0, "no epoch yet")
    a = streams.source("a", epochs=1)
    assert launcher.tick() == (1, None)
    assert launcher.tick() == (0, "3 more epochs")
    streams.commit(a)
    streams.commit(a)
    assert launcher.tick() == (0, "1 more epochs")
    streams.commit(a)
    assert launcher.tick() == (1, None)


def test_checks_that_still_run_are_not_launched_again(streams: MadeStreams) -> None:
    launcher = Launcher(location(streams, epoch_checks([a_check()], every_epochs=1)))
    a = streams.source("a", epochs=1)
    job = launcher.definitions.resolve_job_def("a_checks_job")
    launcher.instance.create_run_for_job(job, status=dg.DagsterRunStatus.STARTED)
    assert launcher.tick() == (0, "the last checks still run")
    [run] = launcher.instance.get_runs()
    launcher.instance.report_run_failed(run)
    assert launcher.tick() == (1, None)
    streams.commit(a)
    assert launcher.tick() == (1, None)


def test_a_stream_made_anew_has_its_checks_run(streams: MadeStreams) -> None:
    launcher = Launcher(location(streams, a_check()))
    streams.source("a", epochs=1)
    launcher.cursor = "500"  # type: ignore[assignment]
    assert launcher.tick() == (1, None)


def test_checks_on_a_schedule_are_on_as_soon_as_they_are_deployed(streams: MadeStreams) -> None:
    definitions = location(streams, a_check(), epoch_checks([a_check(name="hourly")], cron="0 * * * *"), name="eu")
    [schedule] = definitions.schedules or []
    assert isinstance(schedule, dg.ScheduleDefinition)
    assert (schedule.cron_schedule, schedule.default_status) == ("0 * * * *", dg.DefaultScheduleStatus.RUNNING)
    assert schedule.job_name == "eu_a_checks_2_job"
    dg.Definitions.validate_loadable(definitions)
    assert {sensor.name for sensor in definitions.sensors or []} == {"eu_streaming_recovery", "eu_a_checks_sensor"}


@pytest.mark.parametrize("options", [{}, {"every_epochs": 2, "cron": "* * * * *"}, {"every_epochs": 0}])
def test_when_they_run_must_be_said_once(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidPipelineError, match="every_epochs="):
        epoch_checks([a_check()], **options)


def test_only_checks_of_these_streams_are_taken(streams: MadeStreams) -> None:
    with pytest.raises(InvalidPipelineError, match="asset=b"):
        location(streams, a_check(asset="b", name="x", additional_ins={"a": dg.AssetIn()}))
    with pytest.raises(InvalidPipelineError, match="check=function"):
        location(streams, lambda: None)

    specs = [dg.AssetCheckSpec("x", asset="a"), dg.AssetCheckSpec("x", asset="b")]

    @dg.multi_asset_check(specs=specs)
    def of_two() -> Iterator[dg.AssetCheckResult]:
        yield from ()

    with pytest.raises(InvalidPipelineError, match=r"assets=\['a', 'b'\]"):
        epoch_checks([of_two], every_epochs=1)
