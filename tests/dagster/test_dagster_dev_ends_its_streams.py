"""A real `dagster dev` that is ended alone, not by Ctrl-C in its terminal: what its runs do."""

import signal
from pathlib import Path

import pytest

from demo import dagster_dev
from tests.dagster.place import until

LOCATION = """
import os, time
from pathlib import Path
import dagster as dg
from dagster_ckpt.clock import SystemClock
from dagster_ckpt.integration.step.parent_watch import end_with_dagster_dev

STATE = Path(os.environ["STATE"])

@dg.op
def step():
    assert end_with_dagster_dev(SystemClock())  # as the step of a stream does
    STATE.write_text("works")
    try:
        while True:
            time.sleep(0.1)
    except dg.DagsterExecutionInterruptedError:
        STATE.write_text("interrupted")
        raise

@dg.job(executor_def=dg.in_process_executor)
def job():
    step()

@dg.sensor(job=job, minimum_interval_seconds=1, default_status=dg.DefaultSensorStatus.RUNNING)
def once():
    return dg.RunRequest(run_key="once")

defs = dg.Definitions(jobs=[job], sensors=[once])
"""


@pytest.mark.timeout(300)
def test_a_step_is_interrupted_when_dagster_dev_alone_is_ended(tmp_path: Path) -> None:
    location, workspace, state = tmp_path / "location.py", tmp_path / "workspace.yaml", tmp_path / "state"
    location.write_text(LOCATION)
    workspace.write_text(f"load_from:\n  - python_file: {location}\n")
    log = tmp_path / "log"
    dev = dagster_dev.start(tmp_path / "home", log, {"STATE": str(state)}, workspace=workspace)
    try:
        until("the step works", state.exists)
        dev.process.send_signal(signal.SIGINT)
        until("the step is interrupted", lambda: state.read_text() == "interrupted", seconds=60)
    finally:
        dev.end()
