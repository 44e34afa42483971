"""Dagster as a service manager would run it: each process in a session of its own, started again when it died."""

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from demo.dagster_dev import JAVA
from demo.processes import kill_all
from tests.chaos import processes
from tests.servers.machines import as_user

ROOT = Path(__file__).resolve().parents[2]
LOCATION = Path(__file__).with_name("lanes_location.py")
INSTANCE = ROOT / "demo" / "dagster.yaml"


@dataclass
class Service:
    """One of Dagster's long-lived processes. `sessions` are those of all its lives: what it started outlives it."""

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    log: Path
    user: int | None = None
    process: subprocess.Popen[bytes] | None = None
    sessions: list[int] = field(default_factory=list)

    def start(self) -> None:
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                as_user(self.user, self.command),
                env=dict(self.environment),
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                # What starts us with & makes us ignore SIGINT, and Dagster's way to end a run is SIGINT.
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # noqa: PLW1509
            )
        self.sessions.append(self.process.pid)

    def kill(self) -> None:
        """SIGKILL to this process alone; what it started lives on. Returns when it is dead."""
        assert self.process is not None, f"it was never started. service={self.name}"
        self.process.kill()
        self.process.wait()

    def bury(self) -> None:
        """Take note of its death; without that it stays in the process table."""
        if self.process is not None:
            self.process.wait()


@dataclass(frozen=True)
class Services:
    """The three that make a Dagster: the code server, whose children the run workers are, the daemon and the UI."""

    code_server: Service
    daemon: Service
    webserver: Service
    url: str

    @property
    def all(self) -> tuple[Service, Service, Service]:
        return (self.code_server, self.daemon, self.webserver)

    def create_database(self) -> None:
        """Dagster's tables. Each service would create them where there are none; of two at once, one ends of it."""
        command = (sys.executable, "-m", "dagster", "instance", "info")
        as_theirs = as_user(self.daemon.user, command)
        subprocess.run(as_theirs, env=dict(self.daemon.environment), check=True, capture_output=True)

    def members(self) -> set[int]:
        """Every living process of all lives of all services."""
        sessions = processes.sessions()
        # A number that no process has any more may become a stranger's.
        alive = set(sessions.values())
        for service in self.all:
            service.sessions = [session for session in service.sessions if session in alive]
        ours = {session for service in self.all for session in service.sessions}
        return {pid for pid, session in sessions.items() if session in ours}

    def end(self) -> None:
        """SIGKILL to all there is, until nothing is left."""
        for service in self.all:
            for session in service.sessions:
                kill_all(session)
            service.bury()


def services_in(
    place: Path, environment: Mapping[str, str], location: Path = LOCATION, user: int | None = None
) -> Services:
    """Dagster's processes with all their files below `place`, on free ports of this host alone; nothing is started."""
    home, workspace = place / "home", place / "workspace.yaml"
    home.mkdir()
    shutil.copyfile(INSTANCE, home / "dagster.yaml")
    (place / "spark").mkdir()
    if user is not None:
        for each in (home, place / "spark"):
            os.chown(each, user, -1)
    code_port, web_port = _free_ports(2)
    # A server with a life of its own: given a file, the daemon would start one as its child.
    workspace.write_text(f"load_from:\n  - grpc_server: {{host: 127.0.0.1, port: {code_port}, location_name: chaos}}\n")
    # What a killed Spark leaves behind lies here too, and goes with the place.
    here = {"DAGSTER_HOME": str(home), "SPARK_LOCAL_DIRS": str(place / "spark")}
    everywhere = {**os.environ, "JAVA_TOOL_OPTIONS": JAVA, **environment, **here}
    programs = Path(sys.executable).parent

    def service(name: str, *command: str) -> Service:
        return Service(name, (*command,), everywhere, place / f"{name}.log", user)

    python = sys.executable
    return Services(
        code_server=service(
            "code_server",
            *(python, "-m", "dagster", "api", "grpc", "--host", "127.0.0.1", "--port", str(code_port)),
            *("--python-file", str(location), "--working-directory", str(ROOT), "--location-name", "chaos"),
        ),
        daemon=service("daemon", python, str(programs / "dagster-daemon"), "run", "--workspace", str(workspace)),
        webserver=service(
            "webserver",
            *(python, "-m", "dagster_webserver", "--workspace", str(workspace)),
            *("--host", "127.0.0.1", "--port", str(web_port)),
        ),
        url=f"http://127.0.0.1:{web_port}",
    )


def _free_ports(count: int) -> list[int]:
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]
    finally:
        for probe in probes:
            probe.close()
