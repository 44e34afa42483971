"""What the demo starts it can find and end, and it touches nothing else."""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from demo.processes import kill, kill_all, members

# A parent with a child in a process group of its own, as Spark's Python daemon is.
FAMILY = """
import os, subprocess, sys, time
subprocess.Popen([sys.executable, "-c", "import time; print(1, flush=True); time.sleep(600)"], process_group=0)
time.sleep(600)
"""


@pytest.fixture
def family() -> Iterator[int]:
    """The leader of a session with two processes."""
    parent = subprocess.Popen([sys.executable, "-c", FAMILY], start_new_session=True, stdout=subprocess.PIPE)
    assert parent.stdout is not None
    parent.stdout.readline()
    yield parent.pid
    kill_all(parent.pid)
    parent.wait()
    parent.stdout.close()


def test_every_process_of_a_session_is_found(family: int) -> None:
    assert len(members(family)) == 2
    assert family in members(family)


def test_a_killed_process_is_dead_on_return_and_its_family_lives(family: int) -> None:
    (child,) = set(members(family)) - {family}
    kill(child, family)
    assert members(family) == [family]


def test_a_stranger_is_never_killed(family: int) -> None:
    with pytest.raises(ProcessLookupError, match="not ours"):
        kill(os.getpid(), family)


def test_nothing_of_a_session_survives_its_end(family: int) -> None:
    kill_all(family)
    assert members(family) == []
