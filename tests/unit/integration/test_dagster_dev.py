"""Whether the `dagster dev` that a process belongs to has ended."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dagster_ckpt.integration.dagster_dev import DevWatch

DEV = """
import os, subprocess, sys, time
os.environ["DAGSTER_IS_DEV_CLI"] = "1"
subprocess.Popen([sys.executable, "-c", sys.argv[1], sys.argv[2]])
time.sleep(60)
"""

CODE_SERVER = """
import sys, time
from pathlib import Path
from dagster_ckpt.integration.dagster_dev import DevWatch

watch, file = DevWatch(), Path(sys.argv[1])
file.write_text(str(watch.has_ended()))
while not watch.has_ended():
    time.sleep(0.05)
file.write_text("it has ended")
"""


def test_a_code_server_that_outlives_its_killed_dagster_dev_knows(tmp_path: Path) -> None:
    file = tmp_path / "state"
    environment = {name: value for name, value in os.environ.items() if name != "DAGSTER_IS_DEV_CLI"}
    with subprocess.Popen([sys.executable, "-c", DEV, CODE_SERVER, file], cwd=Path.cwd(), env=environment) as dev:
        wait_for(file, "False")
        dev.send_signal(signal.SIGKILL)
        wait_for(file, "it has ended")


def test_no_dagster_dev_has_ended_where_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DAGSTER_IS_DEV_CLI", raising=False)
    assert not DevWatch().has_ended()


def wait_for(file: Path, text: str) -> None:
    end_s = time.monotonic() + 30
    while not file.exists() or file.read_text() != text:
        assert time.monotonic() < end_s, f"waited in vain for {text!r}"
        time.sleep(0.05)
