"""PostgreSQL on this machine's loopback."""

import os
import pwd
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.servers.processes import HOST, Server, free_port, listens, until


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
