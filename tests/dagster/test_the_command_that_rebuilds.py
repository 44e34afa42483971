"""`dagster-ckpt rebuild` launches the stream's job in an instance of Dagster."""

import json
import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest

from dagster_ckpt.integration.launch import command
from tests.unit.history.made_streams import MadeStream, departures

LOCATION = """
import dagster as dg
from dagster_ckpt import CheckpointCoordinatorResource, Stream, build_streaming_definitions, streaming_asset


@streaming_asset(key=["flights", "delays"])
def delays() -> Stream:
    raise AssertionError("it is launched, and nothing starts it")


checkpoints = CheckpointCoordinatorResource(url={url!r})
defs = build_streaming_definitions([delays], checkpoints=checkpoints, spark=dg.ResourceDefinition.none_resource())
"""
QUEUED = "run_coordinator:\n  module: dagster.core.run_coordinator\n  class: QueuedRunCoordinator\n"


@pytest.fixture
def url(tmp_path: Path) -> str:
    stream = MadeStream((tmp_path / "store").as_uri(), "flights/delays")
    stream.commit(departures({"UA": [1.0]}))
    stream.close()
    return (tmp_path / "store").as_uri()


REQUESTS = {
    "rebuild": (["flights/delays", "--pace", "0.5"], {"rebuild": True, "rebuild_pace": 0.5}),
    "restart-steps": (["flights/delays"], {"restart_steps": True}),
    "from-epoch": (["flights/delays", "0"], {"from_epoch": 0}),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "rebuild" else pytest.mark.long) for name in REQUESTS]
)
def test_the_streams_job_is_launched_with_the_request(tmp_path: Path, url: str, name: str) -> None:
    arguments, config = REQUESTS[name]
    home = tmp_path / "home"
    home.mkdir()
    (home / "dagster.yaml").write_text(QUEUED)
    location = tmp_path / "definitions.py"
    location.write_text(LOCATION.format(url=url))
    words = ["--store", url, name, *arguments, "--yes", "--", "-f", str(location)]
    environment = {"DAGSTER_HOME": str(home), "PATH": "/usr/bin:/bin", "PYTHONPATH": str(Path(__file__).parents[2])}
    ran = subprocess.run(
        [sys.executable, "-m", "dagster_ckpt.cli", *words], env=environment, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "flights/delays" in ran.stdout
    assert "launched." in ran.stdout
    [run] = dg.DagsterInstance.from_config(str(home)).get_runs()
    assert (run.job_name, run.status) == ("flights__delays_job", dg.DagsterRunStatus.QUEUED)
    assert run.run_config == {"ops": {"flights__delays": {"config": config}}}


def test_where_dagster_does_not_launch_it_the_command_says_so(tmp_path: Path, url: str) -> None:
    words = ["--store", url, "rebuild", "flights/delays", "--yes", "--", "-f", str(tmp_path / "none.py")]
    ran = subprocess.run(
        [sys.executable, "-m", "dagster_ckpt.cli", *words], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert ran.returncode == 1
    assert "Dagster did not launch the job. Nothing has changed. stream=flights/delays" in ran.stderr


def test_a_job_that_is_named_is_launched_instead() -> None:
    words = command("a/b", {"rebuild": True}, ["-j", "mine_job", "-w", "workspace.yaml"])
    assert words[-4:] == ["-j", "mine_job", "-w", "workspace.yaml"]
    assert json.loads(words[words.index("--config-json") + 1]) == {"ops": {"a__b": {"config": {"rebuild": True}}}}
    assert "--job" not in words
