import os
import signal
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from demo.processes import kill_all
from tests.chaos import processes


@pytest.fixture
def parent() -> Iterator[subprocess.Popen[bytes]]:
    """A shell with a child, in a session of its own."""
    started = subprocess.Popen(["sh", "-c", "sleep 60 & wait"], start_new_session=True)
    while len(processes.tree(started.pid)) < 2 or processes.program(processes.tree(started.pid)[1]) != "sleep":
        time.sleep(0.01)
    yield started
    kill_all(started.pid)
    started.wait()


def test_a_tree_is_a_process_and_all_below_it(parent: subprocess.Popen[bytes]) -> None:
    pid, child = processes.tree(parent.pid)
    assert pid == parent.pid
    assert processes.children(pid) == [child]
    assert processes.command(child) == "sleep 60"
    assert processes.resident_bytes(child) > 0


def test_an_orphan_is_still_of_its_session_and_is_ended_with_it(parent: subprocess.Popen[bytes]) -> None:
    child = processes.tree(parent.pid)[1]
    parent.kill()
    parent.wait()
    assert processes.sessions()[child] == parent.pid
    kill_all(parent.pid)
    assert child not in processes.sessions()


def test_a_stopped_process_is_there(parent: subprocess.Popen[bytes]) -> None:
    child = processes.tree(parent.pid)[1]
    os.kill(child, signal.SIGSTOP)
    while processes.state(child) != "T":
        time.sleep(0.01)
    assert child in processes.sessions()


def test_a_process_that_writes_to_a_database_is_distinguished_from_one_that_reads(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "index.db", isolation_level=None)) as database:
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("CREATE TABLE t (x)")
        database.execute("BEGIN")
        database.execute("SELECT * FROM t").fetchall()
        held = [processes.holds_write_lock([os.getpid()], tmp_path)]
        database.execute("INSERT INTO t VALUES (1)")
        held.append(processes.holds_write_lock([os.getpid()], tmp_path))
        held.append(processes.holds_write_lock([os.getppid()], tmp_path))
        held.append(processes.holds_write_lock([os.getpid()], tmp_path / "elsewhere"))
        database.execute("COMMIT")
        held.append(processes.holds_write_lock([os.getpid()], tmp_path))
    assert held == [False, True, False, False, False]


def test_nothing_is_reported_about_a_process_that_is_gone() -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    assert processes.children(gone.pid) == []
    assert (processes.state(gone.pid), processes.program(gone.pid), processes.command(gone.pid)) == ("", "", "")
    assert processes.resident_bytes(gone.pid) == 0
