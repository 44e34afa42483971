"""What a step must not outlive: its Dagster run's worker, and `dagster dev`.

Dagster's multiprocess executor runs each step in a child. When the worker is killed, Dagster marks the run failed at
once and the sensor relaunches the stream, while the child would run forever. The fence makes it harmless; this ends it.

Ctrl-C in a terminal reaches the run workers of `dagster dev` too. Where only `dagster dev` is ended (by an IDE, by
`kill`), its code server waits for its runs, and a stream would go on without Dagster for hours. So a step interrupts
its process then, as Ctrl-C does: the epoch ends, the lease is closed, and the next start's sensor relaunches the
stream. In all other deployments a stream outlives webserver, daemon and code server.
"""

import ctypes
import logging
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from typing import Protocol

from dagster_ckpt.clock import Clock
from dagster_ckpt.integration.dagster_dev import dagster_dev
from dagster_ckpt.protocol.lease import ProcessId
from dagster_ckpt.storage.leases.process_identity import is_gone

_LOG = logging.getLogger(__name__)

_PR_SET_PDEATHSIG = 1
_LOOK_S = 1.0

_END_MS_MAX = 60_000
"""How long an interrupted step may take to end its epoch; then it is killed, and its lease shows a dead process."""


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


def end_with_dagster_dev(clock: Clock) -> bool:
    """From now on this process is interrupted when the `dagster dev` that it belongs to ends. False if there is none.

    Looks every second. Only on Linux; elsewhere the process goes on, and the next start's sensor adopts its run.
    """
    dev = dagster_dev()
    if dev is None:
        return False
    _LOG.debug("the step ends with dagster dev. pid=%s", dev.pid)
    threading.Thread(target=_interrupt_after, args=(dev, clock), name="dagster-dev-watch", daemon=True).start()
    return True


def _interrupt_after(dev: ProcessId, clock: Clock) -> None:
    while not is_gone(dev):
        clock.sleep_ms(round(_LOOK_S * 1000))
    _LOG.warning("dagster dev has ended: its stream ends with it, and the next start continues it. pid=%s", dev.pid)
    os.kill(os.getpid(), signal.SIGINT)
    clock.sleep_ms(_END_MS_MAX)
    kill_this_process()


def _watch(parent: Parent, born_to: int, die: Callable[[], None]) -> None:
    # The parent may have died before the call to the kernel: then this process has another one already.
    while parent.is_alive() and os.getppid() == born_to:
        parent.join(_LOOK_S)
    die()
