"""PostgreSQL on this machine's loopback."""

import os
import pwd
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from tests.servers.processes import HOST, Server, free_port, listens, until


def _programs() -> Path:
    """The newest PostgreSQL on this machine: Debian does not put its server on PATH."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda folder: int(folder.parent.name))
    assert found, "no PostgreSQL: apt-get install postgresql"
    return found[-1]


class Database:
    """A PostgreSQL with its data below `folder`, which it alone uses, and one database.

    Killed and started again it has the same address and the same data.
    """

    def __init__(self, folder: Path, user: str, password: str, database: str) -> None:
        self._folder, self._user, self._password, self._database = folder, user, password, database
        self.port = free_port()
        self.server: Server | None = None
        # It refuses to run as root.
        self._runs_as = pwd.getpwnam("postgres" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name)
        folder.mkdir()
        os.chown(folder, self._runs_as.pw_uid, self._runs_as.pw_gid)
        for parent in folder.parents:
            if parent.stat().st_uid == os.geteuid() and not parent.stat().st_mode & 0o001:
                parent.chmod(parent.stat().st_mode | 0o011)  # pytest's folders are closed to other users
        secret = folder / "password"
        secret.write_text(password)
        os.chown(secret, self._runs_as.pw_uid, self._runs_as.pw_gid)
        secret.chmod(0o600)
        as_user = ["-U", user, "--pwfile", str(secret), "-A", "scram-sha-256"]
        self._run("initdb", "-D", str(folder / "data"), *as_user, user=self._runs_as.pw_uid)
        try:
            self.start()
            self._run("createdb", "-h", HOST, "-p", str(self.port), "-U", user, database)
        except BaseException:
            self.kill()
            raise

    @property
    def url(self) -> str:
        return self.url_at(self.port)

    def url_at(self, port: int, database: str | None = None) -> str:
        """The address of a database of it, by a proxy with that port."""
        return f"postgresql://{self._user}:{quote(self._password)}@{HOST}:{port}/{database or self._database}"

    def copy(self, database: str) -> None:
        """Dump its database, and restore that into another one, which is made."""
        there = ["-h", HOST, "-p", str(self.port), "-U", self._user]
        dump = str(self._folder / "dump")
        self._run("pg_dump", *there, "-Fc", "-f", dump, self._database)
        self._run("createdb", *there, database)
        self._run("pg_restore", *there, "-d", database, "--exit-on-error", dump)

    def start(self) -> None:
        """Start, and wait until it takes connections: after a SIGKILL it recovers first."""
        listen = ["-h", HOST, "-p", str(self.port), "-k", str(self._folder)]
        command = [str(_programs() / "postgres"), "-D", str(self._folder / "data"), *listen]
        log = self._folder.parent / "postgres.log"
        self.server = Server(command, log, {}, self._folder, self._runs_as.pw_uid)
        until("Postgres takes connections", self._is_ready, 180)

    def kill(self) -> None:
        """SIGKILL every process of it."""
        if self.server is not None:
            self.server.kill()
            self.server = None

    def _is_ready(self) -> bool:
        if not listens(self.port):
            return False
        command = [str(_programs() / "pg_isready"), "-q", "-h", HOST, "-p", str(self.port)]
        return subprocess.run(command, check=False).returncode == 0

    def _run(self, program: str, *arguments: str, user: int | None = None) -> None:
        environment = {**os.environ, "PGPASSWORD": self._password}
        command = [str(_programs() / program), *arguments]
        subprocess.run(command, check=True, user=user, cwd=self._folder, env=environment, stdout=subprocess.DEVNULL)


@contextmanager
def postgres(folder: Path, user: str, password: str, database: str) -> Iterator[int]:
    """A PostgreSQL that runs; its port."""
    server = Database(folder, user, password, database)
    try:
        yield server.port
    finally:
        server.kill()
