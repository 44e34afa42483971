"""The identity of a process, and whether another has ended: as Linux reports them."""

import os
import socket
from pathlib import Path

from dagster_ckpt.protocol.lease import ProcessId

_PROC = Path("/proc")


def this_process() -> ProcessId:
    """The identity of the calling process."""
    return identify_process(os.getpid())


def identify_process(pid: int) -> ProcessId:
    """The identity of a process of this host. Raises OSError for one that has ended, or is hidden from this user."""
    _, started_ticks = _state_and_start(pid)
    return ProcessId(socket.gethostname(), _boot(), _namespace(), pid, started_ticks)


def is_gone(process: ProcessId) -> bool:
    """Whether that process is known to have ended. False if that is unknown: another host, boot or container."""
    if (process.host, process.boot, process.namespace) != (socket.gethostname(), _boot(), _namespace()):
        return False
    try:
        os.kill(process.pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass  # another user's process, so it exists
    try:
        state, started_ticks = _state_and_start(process.pid)
    except OSError:
        return False  # hidden from this user, or just gone: the next check finds out
    return state in {"Z", "X"} or started_ticks != process.started_ticks


def _state_and_start(pid: int) -> tuple[str, int]:
    """Fields 3 and 22 of `/proc/<pid>/stat` (man 5 proc); the name before them may hold blanks and brackets."""
    fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    return fields[0], int(fields[19])


def _boot() -> str:
    return (_PROC / "sys/kernel/random/boot_id").read_text().strip()


def _namespace() -> str:
    return str((_PROC / "self/ns/pid").readlink())
