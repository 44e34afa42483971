"""The processes of a session, as Linux sees them in /proc."""

import os
import signal
import time
from pathlib import Path


def members(session: int) -> list[int]:
    """Every living process of a session: what its leader started, and what those started, in whatever process group."""
    return [
        int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal() and _session(entry) == session
    ]


def kill(pid: int, session: int) -> None:
    """SIGKILL a process of ours, and return when it is dead. Raises ProcessLookupError where it is not in `session`."""
    if pid not in members(session):
        raise ProcessLookupError(f"this process is not ours, or has ended. pid={pid}, session={session}")
    os.kill(pid, signal.SIGKILL)
    while pid in members(session):
        time.sleep(0.01)


def kill_all(session: int) -> None:
    """SIGKILL whatever is left of a session, and return when nothing is."""
    while left := members(session):
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.05)


def _session(entry: Path) -> int | None:
    try:
        # "pid (name) state ppid pgrp session ...", where the name may hold blanks and brackets.
        state, _parent, _group, session = entry.joinpath("stat").read_text().rpartition(")")[2].split()[:4]
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if state == "Z" else int(session)
