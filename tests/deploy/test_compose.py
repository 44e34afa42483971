"""The services of deploy/compose.yaml as processes of this machine: their commands, settings and files as they stand.

What differs: no container around them, free ports, and a PostgreSQL of this machine in the place of the image.
"""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml

from dagster_ckpt import CheckpointStore
from tests.servers.postgres import postgres
from tests.servers.processes import HOST, Server, free_port, listens, until

DEPLOY = Path(__file__).parents[2] / "deploy"
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
DOCKERFILE = (DEPLOY / "Dockerfile").read_text()
PASSWORD = "a-test-password"
BIN = Path(sys.executable).parent
STREAMS = ("delay_by_carrier", "late_carriers")


def run_steps() -> list[list[str]]:
    """The commands of the Dockerfile that make the archive and the project."""
    lines = DOCKERFILE.replace("\\\n", " ").splitlines()
    steps = [step.strip() for line in lines if line.startswith("RUN ") for step in line[4:].split("&&")]
    return [shlex.split(step) for step in steps if step.startswith("dagster-ckpt ") or "/opt/shop" in step]


def unit_of(service: str) -> dict[str, str]:
    """The settings of a systemd unit."""
    lines = (DEPLOY / "systemd" / f"dagster-{service}.service").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if re.match(r"[A-Z]\w+=", line))


class Deployment:
    """What `docker compose up` starts, without Docker."""

    def __init__(self, folder: Path, database: int) -> None:
        self.folder = folder
        self.home, self.shop = folder / "opt/dagster", folder / "opt/shop"
        self.ports = {"4000": str(free_port()), "3000": str(free_port())}
        environment = COMPOSE["services"]["shop"]["environment"]
        self.environment = {
            **{name: re.sub(r"\$\{POSTGRES_PASSWORD[^}]*\}", PASSWORD, value) for name, value in environment.items()},
            "DAGSTER_POSTGRES_HOST": HOST,
            "DAGSTER_POSTGRES_PORT": str(database),
            "DAGSTER_HOME": str(self.home),
            "PATH": f"{BIN}:{os.environ['PATH']}",
        }
        self.running: dict[str, Server] = {}
        self.left: list[Server] = []

    def build(self) -> None:
        """As the last stage of the Dockerfile does."""
        self.home.mkdir(parents=True)
        for name in ("dagster.yaml", "workspace.yaml"):
            (self.home / name).write_text(self._here((DEPLOY / name).read_text()))
        for step in run_steps():
            command = [self._here(word) for word in step]
            subprocess.run(command, check=True, env={**os.environ, **self.environment})

    def start(self, service: str) -> None:
        words = [self._here(word) for word in shlex.split(COMPOSE["services"][service]["command"])]
        self.running[service] = Server(words, self.folder / f"{service}.log", self.environment, self.shop)

    def stop(self, service: str) -> None:
        self.running.pop(service).kill()

    def restart_main(self, service: str) -> None:
        """As `systemctl restart` does with the settings of the unit."""
        server = self.running.pop(service)
        self.left.append(server)
        server.stop_main(float(unit_of(service)["TimeoutStopSec"]))
        self.start(service)

    def more_rows(self) -> None:
        command = [sys.executable, "departures.py"]
        subprocess.run(command, check=True, cwd=self.shop, env={**os.environ, **self.environment})

    def flights(self) -> int:
        history = CheckpointStore((self.shop / "checkpoints").as_uri()).stream("delay_by_carrier")
        return sum(history.read(columns=["flights"])["flights"].to_pylist())

    def has_epochs(self) -> bool:
        store = CheckpointStore((self.shop / "checkpoints").as_uri())
        return set(store.streams()) == set(STREAMS) and all(store.stream(name).epochs() for name in STREAMS)

    def term(self) -> int:
        return CheckpointStore((self.shop / "checkpoints").as_uri()).stream("delay_by_carrier").writer().term

    @contextmanager
    def logs_on_failure(self) -> Iterator[None]:
        try:
            yield
        except AssertionError as error:
            ends = [f"{service}:\n{server.last_lines()}" for service, server in self.running.items()]
            raise AssertionError("\n\n".join([str(error), *ends])) from error

    def _here(self, text: str) -> str:
        """The text with this machine's ports, addresses and folders."""
        for port, free in self.ports.items():
            text = re.sub(rf"\b{port}\b", free, text)
        text = text.replace("0.0.0.0", HOST).replace("host: shop", f"host: {HOST}")
        return text.replace("/opt/dagster", str(self.home)).replace("/opt/shop", str(self.shop))


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    environment = COMPOSE["services"]["postgres"]["environment"]
    with postgres(tmp_path / "postgres", environment["POSTGRES_USER"], PASSWORD, environment["POSTGRES_DB"]) as port:
        made = Deployment(tmp_path, port)
        try:
            yield made
        finally:
            for server in (*made.running.values(), *made.left):
                server.kill()


@pytest.mark.timeout(900)
def test_the_services_run_two_streams_on_postgres_and_a_killed_container_of_streams_comes_back(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployment.build()
    for service in ("shop", "webserver", "daemon"):
        deployment.start(service)
    with deployment.logs_on_failure():
        until("both streams have an epoch", deployment.has_epochs, 240)
        assert deployment.flights() == 1_000
        until("the webserver listens", lambda: listens(int(deployment.ports["3000"])))
        for name, value in deployment.environment.items():
            monkeypatch.setenv(name, value)
        with dg.DagsterInstance.get() as instance:
            assert "Postgres" in type(instance.run_storage).__name__
            assert {run.job_name for run in instance.get_runs()} >= {f"{name}_job" for name in STREAMS}
        # The container of the code location is replaced: its streams die with it, at any moment.
        deployment.stop("shop")
        deployment.more_rows()
        deployment.start("shop")
        until("the rows that came meanwhile are counted", lambda: deployment.flights() == 2_000, 240)
        # Those of the webserver and the daemon are: the streams do not notice.
        term = deployment.term()
        for service in ("webserver", "daemon"):
            deployment.stop(service)
            deployment.start(service)
        deployment.more_rows()
        until("the next rows are counted", lambda: deployment.flights() == 3_000)
        # So with systemd, which ends the code server's first process alone.
        assert unit_of("shop")["KillMode"] == "process"
        deployment.restart_main("shop")
        deployment.more_rows()
        until("the rows after the restart are counted", lambda: deployment.flights() == 4_000)
        assert deployment.term() == term
        until("the new code server listens", lambda: listens(int(deployment.ports["4000"])))


@pytest.mark.parametrize("service", ["shop", "webserver", "daemon"])
def test_a_unit_of_systemd_starts_what_the_service_of_compose_starts(service: str) -> None:
    command = COMPOSE["services"][service]["command"].replace("0.0.0.0", HOST)
    assert unit_of(service)["ExecStart"] == f"/opt/venv/bin/{command}"
