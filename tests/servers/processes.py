"""Processes that listen on this machine's loopback: started, waited for, ended."""

import os
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from demo.processes import kill_all

HOST = "127.0.0.1"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def until(what: str, holds: Callable[[], object], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"after {seconds:.0f} s still not: {what}"
        time.sleep(0.5)


def listens(port: int) -> bool:
    with socket.socket() as client:
        client.settimeout(1)
        return client.connect_ex((HOST, port)) == 0


class Killable(Protocol):
    """A server that keeps its address and its data over a kill."""

    def start(self) -> None:
        """Start, and wait until it listens."""

    def kill(self) -> None:
        """SIGKILL every process of it."""


class Server:
    """A process with all that it starts: a session, as a container is."""

    def __init__(
        self, command: Sequence[str], log: Path, environment: Mapping[str, str], folder: Path, user: int | None = None
    ) -> None:
        self.log = log
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                command,
                cwd=folder,
                env={**os.environ, **environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                user=user,
            )

    def stop_main(self, seconds: float) -> None:
        """End the first process alone, as systemd does with `KillMode=process`: SIGTERM, then SIGKILL."""
        self.process.terminate()
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def kill(self) -> None:
        """SIGKILL everything in it, as the end of a container does."""
        kill_all(self.process.pid)
        self.process.wait()

    def last_lines(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-40:])
