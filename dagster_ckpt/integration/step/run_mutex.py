"""Streams of one Dagster run work one after another, even if each step has a separate process.

Dagster's multiprocess executor would start them in parallel, each with a separate Spark.
"""

import errno
import socket
from collections.abc import Iterator
from contextlib import contextmanager

from dagster_ckpt.clock import Clock

_LOOK_MS = 500


@contextmanager
def run_mutex(run_id: str, clock: Clock) -> Iterator[None]:
    """Wait for this Dagster run's mutex on this host, and hold it. If the process dies, the kernel releases it.

    It is a socket in Linux's abstract namespace: a name that one process at a time can bind, and that leaves no file.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as holder:
        while not _bound(holder, f"\0dagster_ckpt/{run_id}"):
            clock.sleep_ms(_LOOK_MS)
        yield


def _bound(holder: socket.socket, name: str) -> bool:
    try:
        holder.bind(name)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        return False
    return True
