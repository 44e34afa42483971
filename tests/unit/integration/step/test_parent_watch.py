import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dagster_ckpt.integration.step.parent_watch import die_with_parent, end_with_dagster_dev
from tests.worlds.clock import StillClock

FAMILY = """
import multiprocessing, os, sys, time
from dagster_ckpt.integration.step.parent_watch import die_with_parent, end_with_dagster_dev
from tests.worlds.clock import StillClock

def child(pid_file):
    assert die_with_parent()
    with open(pid_file, "w") as file:
        file.write(str(os.getpid()))
    time.sleep(60)

if __name__ == "__main__":
    process = multiprocessing.get_context(sys.argv[1]).Process(target=child, args=(sys.argv[2],))
    process.start()
    process.join()
"""


def wait_until(true: object, what: str, seconds: float = 40) -> None:
    end = time.monotonic() + seconds
    while not true():  # type: ignore[operator]
        assert time.monotonic() < end, f"waited in vain until {what}"
        time.sleep(0.02)


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


@pytest.mark.parametrize("start_method", ["spawn", "forkserver", "fork"])
def test_a_step_in_a_child_process_dies_with_the_run_worker(tmp_path: Path, start_method: str) -> None:
    script, pid_file = tmp_path / "family.py", tmp_path / "pid"
    script.write_text(FAMILY)
    with subprocess.Popen([sys.executable, script, start_method, pid_file], cwd=Path.cwd()) as worker:
        wait_until(lambda: pid_file.exists() and pid_file.read_text(), "the child is at work")
        child = int(pid_file.read_text())
        assert not is_gone(child)
        worker.send_signal(signal.SIGKILL)
        wait_until(lambda: is_gone(child), "the child is gone", seconds=20)


def test_a_process_that_multiprocessing_did_not_start_watches_no_parent() -> None:
    assert not die_with_parent()


ORPHAN = """
import os, sys, time
from dagster_ckpt.integration.step.parent_watch import die_with_parent, end_with_dagster_dev
from tests.worlds.clock import StillClock

class DeadSoon:
    joined = 0
    def join(self, timeout=None):
        self.joined += 1
    def is_alive(self):
        return self.joined < 3

parent = DeadSoon()
die_with_parent(parent, lambda: os._exit(parent.joined))
time.sleep(60)
"""


def test_the_thread_alone_notices_a_dead_parent() -> None:
    assert subprocess.run([sys.executable, "-c", ORPHAN], cwd=Path.cwd(), check=False, timeout=45).returncode == 3


DEV = """
import os, subprocess, sys, time
os.environ["DAGSTER_IS_DEV_CLI"] = "1"
subprocess.Popen([sys.executable, sys.argv[1], sys.argv[2]])
time.sleep(60)
"""

CODE_SERVER = """
import multiprocessing, os, signal, sys, time
from pathlib import Path
from dagster_ckpt.clock import SystemClock
from dagster_ckpt.integration.step.parent_watch import end_with_dagster_dev

def worker(file):
    signal.signal(signal.SIGINT, signal.default_int_handler)
    assert end_with_dagster_dev(SystemClock())
    Path(file).write_text("works")
    try:
        time.sleep(60)
    except KeyboardInterrupt:
        Path(file).write_text("interrupted")

if __name__ == "__main__":
    process = multiprocessing.get_context("spawn").Process(target=worker, args=(sys.argv[1],))
    process.start()
    process.join()
"""


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_step_is_interrupted_when_dagster_dev_alone_is_ended(tmp_path: Path, how: signal.Signals) -> None:
    dev_script, server_script, file = tmp_path / "dev.py", tmp_path / "server.py", tmp_path / "state"
    dev_script.write_text(DEV)
    server_script.write_text(CODE_SERVER)
    environment = {name: value for name, value in os.environ.items() if name != "DAGSTER_IS_DEV_CLI"}
    with subprocess.Popen(
        [sys.executable, dev_script, server_script, file],
        cwd=Path.cwd(),
        env=environment,
        # A script that starts the tests with & makes them ignore SIGINT, and all that they start.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # noqa: PLW1509
    ) as dev:
        wait_until(lambda: file.exists() and file.read_text() == "works", "the step works")
        dev.send_signal(how)
        wait_until(lambda: file.read_text() == "interrupted", "the step is interrupted", seconds=20)


def test_a_step_outside_dagster_dev_ends_with_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DAGSTER_IS_DEV_CLI", raising=False)
    assert not end_with_dagster_dev(StillClock())
    # Below a process that was itself started with the variable, up to the first of all, there is no dagster dev.
    monkeypatch.setenv("DAGSTER_IS_DEV_CLI", "1")
    monkeypatch.setattr(os, "getppid", lambda: 1)
    assert not end_with_dagster_dev(StillClock())
