"""A step in a child process must not outlive its Dagster run's worker.

Dagster's multiprocess executor runs each step in a child. When the worker is killed, Dagster marks the run failed at
once and the sensor relaunches the stream, while the child would run forever. The fence makes it harmless; this ends it.
"""

import ctypes
import logging
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from typing import Protocol

_LOG = logging.getLogger(__name__)

_PR_SET_PDEATHSIG = 1
_LOOK_S = 1.0


class Parent(Protocol):
    """The process that started this one: what `multiprocessing.parent_process()` gives."""

    def join(self, timeout: float | None = None) -> None: ...

    def is_alive(self) -> bool: ...


def kill_this_process() -> None:
    """End at once, as a killed worker would: no later result could reach Dagster."""
    os.kill(os.getpid(), signal.SIGKILL)


def die_with_parent(parent: Parent | None = None, die: Callable[[], None] = kill_this_process) -> bool:
    """From now on this process dies with the one that started it. False if that was not `multiprocessing`.

    The kernel ends it. Where it cannot (not Linux; a fork server in between), a thread watches.
    """
    parent = parent or multiprocessing.parent_process()
    if parent is None:
        return False
    born_to = os.getppid()
    try:
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    except (OSError, AttributeError):
        _LOG.debug("this kernel cannot end a process with its parent: a thread watches it")
    watch = threading.Thread(target=_watch, args=(parent, born_to, die), name="parent-watch", daemon=True)
    watch.start()
    return True


def _watch(parent: Parent, born_to: int, die: Callable[[], None]) -> None:
    # The parent may have died before the call to the kernel: then this process has another one already.
    while parent.is_alive() and os.getppid() == born_to:
        parent.join(_LOOK_S)
    die()
