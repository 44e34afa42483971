"""What a step hands the runtime: the asset's own options beat those of the resources."""

from typing import Any

import dagster as dg
import pytest

from dagster_ckpt import CheckpointCoordinatorResource, LsmStateBackendResource, Stream, streaming_asset
from dagster_ckpt.integration.step import workload
from dagster_ckpt.runtime.driver.stream_job import StreamJob


class NoSparkError(Exception):
    """The runtime would begin here."""


def job_of(monkeypatch: pytest.MonkeyPatch, **options: object) -> StreamJob:
    """The job that Dagster's step of a streaming asset with these options makes, in a location that commits at 10 s."""
    jobs: list[StreamJob] = []

    def run_stream(job: StreamJob, *_: object) -> None:
        jobs.append(job)
        raise NoSparkError

    monkeypatch.setattr(workload, "run_stream", run_stream)
    frame: Any = None
    monkeypatch.setattr(workload, "user_stream", lambda *_: Stream(frame))

    def departures() -> Stream:
        raise NotImplementedError

    decorate: Any = streaming_asset
    dg.materialize(
        [decorate(**options)(departures)],
        resources={
            "checkpoints": CheckpointCoordinatorResource(url="memory://step-options", checkpoint_interval="10s"),
            "state": LsmStateBackendResource(),
            "spark": dg.ResourceDefinition.none_resource(),
            "epochs": dg.mem_io_manager,
        },
        raise_on_error=False,
    )
    [job] = jobs
    return job


def test_an_assets_own_checkpoint_interval_overrides_the_resources(monkeypatch: pytest.MonkeyPatch) -> None:
    assert job_of(monkeypatch, checkpoint_interval="3s").options.checkpoint_interval_ms == 3_000


def test_an_asset_without_a_checkpoint_interval_takes_the_resources(monkeypatch: pytest.MonkeyPatch) -> None:
    assert job_of(monkeypatch).options.checkpoint_interval_ms == 10_000


@pytest.mark.parametrize("tasks", [None, 1, 24])
def test_an_assets_own_number_of_tasks_is_used(monkeypatch: pytest.MonkeyPatch, tasks: int | None) -> None:
    assert job_of(monkeypatch, tasks=tasks).options.tasks_max == tasks
