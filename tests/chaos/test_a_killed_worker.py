"""SIGKILL of the Dagster run worker in the middle of an epoch: the real daemon, the real sensor, real Spark."""

from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest

from demo.dagster_api import DagsterApi
from demo.dagster_dev import DagsterDev, start
from demo.processes import kill, members
from tests.chaos.processes import program, tree
from tests.chaos.world import Feed, until

LOCATION = Path(__file__).with_name("location.py")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("chaos")


@pytest.fixture(scope="module")
def dagster(place: Path) -> Iterator[DagsterDev]:
    workspace = place / "workspace.yaml"
    workspace.write_text(f"load_from:\n  - python_file: {LOCATION}\n")
    environment = {"DAGSTER_CKPT_TEST_PLACE": str(place)}
    running = start(place / "home", place / "dagster.log", environment, workspace=workspace)
    try:
        running.wait_until_ready()
        yield running
    finally:
        running.end()


def _is_live(pid: int, dagster: DagsterDev) -> bool:
    return pid in members(dagster.session)


def _worker(api: DagsterApi, run: str) -> int:
    until("Dagster knows the run's worker", lambda: api.worker(run) is not None)
    worker = api.worker(run)
    assert worker is not None
    return worker


@pytest.mark.timeout(1200)
def test_a_worker_killed_in_the_middle_of_an_epoch_is_replaced_and_no_row_is_lost_or_doubled(
    place: Path, dagster: DagsterDev
) -> None:
    api = dagster.api
    as_job, as_asset = feeds = Feed(place, "killed_as_job"), Feed(place, "killed_as_asset")
    for feed in feeds:
        feed.drop(3)
    # One as our own job runs it, in the worker's own process; one as the asset's page does, in a step process below it.
    first_runs = {as_job.name: api.launch("killed_as_job_job"), as_asset.name: api.materialize("killed_as_asset")}
    for feed in feeds:
        until(f"{feed.name} works its first files", feed.is_through)

    for feed in feeds:
        feed.close_gate()
        feed.drop(2)
    for feed in feeds:
        until(f"an epoch of {feed.name} is in the middle", lambda feed=feed: feed.inside)  # type: ignore[misc]
    before = {feed.name: feed.rows() for feed in feeds}
    workers = {name: _worker(api, run) for name, run in first_runs.items()}
    # The step of a run from the asset's page is a child of the worker, and must not outlive it as a second writer.
    step = [pid for pid in tree(workers[as_asset.name])[1:] if "python" in program(pid)]
    assert step
    for worker in workers.values():
        kill(worker, dagster.session)

    until("the killed worker's children have ended", lambda: not any(_is_live(child, dagster) for child in step), 120)
    assert {feed.name: feed.rows() for feed in feeds} == before, "an epoch in the middle was committed by a dead worker"
    for feed in feeds:
        feed.open_gate()
        feed.drop(2)

    for feed in feeds:
        until(f"{feed.name} has recovered by itself", feed.is_through)
        pd.testing.assert_frame_equal(feed.table(), feed.batch())
    states = {run.id: run.status for run in api.runs()}
    assert [states[run] for run in first_runs.values()] == ["FAILURE", "FAILURE"]
    assert len(states) == 4, f"one relaunch each. states={states}"

    # A person's Terminate drains, and is not taken for a crash.
    api.terminate([run.id for run in api.runs() if run.unfinished])
    until("the relaunched runs have ended", lambda: not any(run.unfinished for run in api.runs()))
    assert sorted(run.status for run in api.runs()) == ["CANCELED", "CANCELED", "FAILURE", "FAILURE"]
