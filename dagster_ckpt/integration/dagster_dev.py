"""The `dagster dev` that a process belongs to, and whether it has ended."""

import os
from dataclasses import dataclass, field
from pathlib import Path

from dagster_ckpt.protocol.lease import ProcessId
from dagster_ckpt.storage.leases.process_identity import identify_process, is_gone

_PROC = Path("/proc")

_IN_DAGSTER_DEV = "DAGSTER_IS_DEV_CLI"
"""Set by `dagster dev` for all that it starts. It is not in the environment that it was started with itself."""


def dagster_dev() -> ProcessId | None:
    """The first process above this one that `dagster dev` has not started. None: there is none, or it has ended.

    Known only on Linux.
    """
    if _IN_DAGSTER_DEV not in os.environ:
        return None
    try:
        pid = os.getppid()
        while pid > 1 and f"{_IN_DAGSTER_DEV}=".encode() in (_PROC / str(pid) / "environ").read_bytes():
            pid = _parent_pid(pid)
        return identify_process(pid) if pid > 1 else None
    except OSError:
        return None  # no such file system, a process that has just ended, or one of another user


@dataclass
class DevWatch:
    """Whether the `dagster dev` that this process belonged to at the first look has ended since."""

    _dev: ProcessId | None = field(default=None, init=False)
    _looked: bool = field(default=False, init=False)

    def has_ended(self) -> bool:
        """False also where this process belongs to none."""
        if not self._looked:
            self._looked, self._dev = True, dagster_dev()
        return self._dev is not None and is_gone(self._dev)


def _parent_pid(pid: int) -> int:
    """Field 4 of `/proc/<pid>/stat` (man 5 proc); the name before it may hold blanks and brackets."""
    return int((_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[1])
