"""Processes that listen on this machine's loopback: started, waited for, ended."""

import os
import pwd
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

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


def _programs() -> Path:
    """The newest PostgreSQL on this machine: Debian does not put its server on PATH."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda folder: int(folder.parent.name))
    assert found, "no PostgreSQL: apt-get install postgresql"
    return found[-1]


@contextmanager
def postgres(folder: Path, user: str, password: str, database: str) -> Iterator[int]:
    """A PostgreSQL with its data below `folder`, which it alone uses; its port."""
    programs, port = _programs(), free_port()
    # It refuses to run as root.
    runs_as = pwd.getpwnam("postgres" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name)
    folder.mkdir()
    os.chown(folder, runs_as.pw_uid, runs_as.pw_gid)
    for parent in folder.parents:
        if parent.stat().st_uid == os.geteuid() and not parent.stat().st_mode & 0o001:
            parent.chmod(parent.stat().st_mode | 0o011)  # pytest's folders are closed to other users
    secret = folder / "password"
    secret.write_text(password)
    os.chown(secret, runs_as.pw_uid, runs_as.pw_gid)
    secret.chmod(0o600)
    data = folder / "data"
    initialize = [str(programs / "initdb"), "-D", str(data), "-U", user, "--pwfile", str(secret), "-A", "scram-sha-256"]
    subprocess.run(initialize, check=True, user=runs_as.pw_uid, cwd=folder, stdout=subprocess.DEVNULL)
    command = [str(programs / "postgres"), "-D", str(data), "-h", HOST, "-p", str(port), "-k", str(folder)]
    server = Server(command, folder.parent / "postgres.log", {}, folder, runs_as.pw_uid)
    try:
        until("Postgres listens", lambda: listens(port), 60)
        create = [str(programs / "createdb"), "-h", HOST, "-p", str(port), "-U", user, database]
        subprocess.run(create, check=True, env={**os.environ, "PGPASSWORD": password})
        yield port
    finally:
        server.kill()
