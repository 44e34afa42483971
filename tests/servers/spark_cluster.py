"""A standalone cluster of Spark: a master and workers, each a process with a folder of its own, on a machine each."""

import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

import pyspark

from tests.chaos import processes
from tests.servers.machines import Machine, serve
from tests.servers.processes import Server, free_port, until

SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
_STARTED_S_MAX = 90.0


@dataclass
class Part:
    """The master or a worker: a process that can be killed and started again."""

    machine: Machine
    command: list[str]
    folder: Path
    environment: dict[str, str]
    port: int
    server: Server | None = None
    sessions: list[int] = field(default_factory=list)

    @property
    def pid(self) -> int:
        assert self.server is not None, "it was never started"
        return self.server.process.pid

    def start(self) -> None:
        log = self.folder / "log"
        self.server = serve(self.machine, self.command, log, self.environment, self.folder)
        self.sessions.append(self.pid)
        until(f"{self.machine.name} listens", partial(self._listens, self.server), _STARTED_S_MAX)

    def kill(self) -> None:
        """SIGKILL to the process alone: what it started ends by itself, or does not."""
        assert self.server is not None, "it was never started"
        self.server.process.kill()
        self.server.process.wait()

    def _listens(self, server: Server) -> bool:
        assert server.process.poll() is None, f"{self.machine.name} has ended: {server.last_lines()}"
        return processes.listens_at(server.process.pid, self.port)


class SparkCluster:
    """Entered: master and workers run. Left: nothing that they started is left.

    `conf` and `environment` are of these processes; executors inherit the environment.
    """

    def __init__(
        self,
        master: Machine,
        workers: Sequence[Machine],
        folder: Path,
        cores: int = 1,
        memory: str = "1g",
        conf: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._machines = (master, workers)
        self._options = {"spark.deploy.recoveryMode": "FILESYSTEM", **(conf or {})}
        self._shape = (cores, memory)
        self._environment = dict(environment or {})
        self._folder = folder
        self.workers: list[Part] = []

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def _start(self) -> None:
        (master, workers), (cores, memory) = self._machines, self._shape
        port = free_port()
        self.address = f"spark://{master.address}:{port}"
        self.master = self._part(
            master,
            port,
            "org.apache.spark.deploy.master.Master",
            *("--host", master.address, "--port", str(port), "--webui-port", str(free_port())),
        )
        self.master.start()
        for machine in workers:
            port = free_port()
            part = self._part(
                machine,
                port,
                "org.apache.spark.deploy.worker.Worker",
                *("--host", machine.address, "--port", str(port), "--webui-port", str(free_port())),
                *("--cores", str(cores), "--memory", memory),
                *("--work-dir", str(self._folder / machine.name / "work"), self.address),
            )
            self.workers.append(part)
            part.start()

    def _part(self, machine: Machine, port: int, program: str, *arguments: str) -> Part:
        folder = self._folder / machine.name
        for each in (folder, folder / "tmp", folder / "recovery"):
            each.mkdir(parents=True, exist_ok=True)
            if machine.user is not None:
                os.chown(each, machine.user, -1)
        options = {"spark.deploy.recoveryDirectory": str(folder / "recovery"), **self._options}
        environment = {
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": " ".join(f"-D{name}={value}" for name, value in options.items()),
            "SPARK_LOCAL_IP": machine.address,
            "SPARK_LOCAL_DIRS": str(folder / "tmp"),
            "TMPDIR": "/tmp",  # a folder for Unix domain sockets, whose addresses have at most 107 characters
            "HOME": str(folder),
            "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "PYTHONPATH": "",  # executors have what Spark brings them, and what their Python has
            **self._environment,
        }
        return Part(machine, [str(SPARK_CLASS), program, *arguments], folder, environment, port)

    @property
    def parts(self) -> list[Part]:
        return [*([self.master] if hasattr(self, "master") else []), *self.workers]

    def members(self) -> set[int]:
        """Every living process of all lives of its parts, executors included."""
        sessions = processes.sessions()
        ours = {session for part in self.parts for session in part.sessions}
        return {pid for pid, session in sessions.items() if session in ours}

    def executors(self, driver_jvm: int) -> list[int]:
        """The JVMs that run the tasks of this driver."""
        found = []
        for part in self.workers:
            for pid in self._of(part):
                command = processes.command(pid)
                if "CoarseGrainedExecutorBackend" in command and processes.program(pid) == "java":
                    port = command.partition("CoarseGrainedScheduler@")[2].partition(" ")[0].rpartition(":")[2]
                    if port.isdecimal() and processes.listens_at(driver_jvm, int(port)):
                        found.append(pid)
        return sorted(found)

    def worker_of(self, executor: int) -> Part:
        """The worker that an executor belongs to."""
        found = next((part for part in self.workers if executor in self._of(part)), None)
        if found is None:
            raise ProcessLookupError(f"the executor has ended. pid={executor}")
        return found

    def decommission(self, part: Part) -> None:
        """Have a worker and its executors leave, as a cloud does before it takes a machine away."""
        os.kill(part.pid, signal.SIGPWR)

    def kill_machine(self, part: Part) -> None:
        """SIGKILL to a worker and its executors with their Python, until nothing of them is left."""
        _kill(partial(self._of, part))
        assert part.server is not None, "it was never started"
        part.server.process.wait()

    def end(self) -> None:
        """SIGKILL to all there is, until nothing is left."""
        _kill(self.members)
        for part in self.parts:
            if part.server is not None:
                part.server.process.wait()

    def _of(self, part: Part) -> set[int]:
        return {pid for pid, session in processes.sessions().items() if session in part.sessions}


def _kill(members: Callable[[], set[int]]) -> None:
    while left := members():
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.05)
