"""All of a Dagster with its streams at work, and who of it is where: what a person with `ps` and the UI would see."""

import os
import signal
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from dagster_ckpt import CheckpointStore, InvalidPipelineError
from dagster_ckpt.history import StreamHistory
from dagster_ckpt.protocol.object_names import TRIMMED
from dagster_ckpt.storage.stores.address import StoreAddress
from dagster_ckpt.storage.stores.folder import stream_folder
from demo.dagster_api import DagsterApi, Run
from demo.errors import DemoError
from tests.chaos import processes
from tests.chaos.lanes import PLACE_VARIABLE, checkpoints_in
from tests.chaos.services import LOCATION, Services, services_in
from tests.chaos.world import until
from tests.servers.spark_cluster import SparkCluster

ASSET_JOB = "__ASSET_JOB"
"""What Dagster calls the job behind the button on an asset's page."""

READY_S_MAX = 300.0

NO_ANSWER = (OSError, DemoError)
"""What a Dagster that is down, or starts, makes of a question."""


@dataclass(frozen=True)
class Standing:
    """How far a lane has come: nothing where nobody has opened it yet."""

    term: int = 0
    epoch: int = 0
    rows: int = 0


@dataclass(frozen=True)
class AtWork:
    """The processes of one lane's Dagster run; None, or empty, where they have not been started yet.

    `driver` is the one that has Spark's JVM: the step where that has a process of its own, else the worker itself.
    `python_workers` are Spark's, below `pyspark.daemon`; on a cluster of Spark below its `executors`, which are JVMs.
    """

    run: str
    worker: int
    step: int | None = None
    jvm: int | None = None
    python_workers: tuple[int, ...] = ()
    executors: tuple[int, ...] = ()

    @property
    def driver(self) -> int:
        return self.worker if self.step is None else self.step


class Cluster:
    """Dagster's services on a place of their own. Entered: they run. Left: nothing that they started is left.

    `store` is where the streams are, `spark` has their executors and `user` runs the services, if others than usual.
    """

    def __init__(
        self,
        place: Path,
        environment: Mapping[str, str],
        location: Path = LOCATION,
        store: StoreAddress | None = None,
        spark: SparkCluster | None = None,
        user: int | None = None,
    ) -> None:
        self.place = place
        self.spark = spark
        self.services: Services = services_in(place, {**environment, PLACE_VARIABLE: str(place)}, location, user)
        self.api = DagsterApi(self.services.url)
        self._address = StoreAddress(checkpoints_in(place)) if store is None else store
        self._store = CheckpointStore(self._address.url, self._address.options)
        self._workers: dict[str, int] = {}

    def __enter__(self) -> Self:
        self.services.create_database()
        self.start_everything()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.services.end()

    def wait_until_ready(self) -> None:
        """Until runs can be launched."""
        until("Dagster can launch runs", self.is_ready, READY_S_MAX)

    def is_ready(self) -> bool:
        try:
            return self.api.ready()
        except NO_ANSWER:
            return False

    def history(self, lane: str) -> StreamHistory:
        return self._store.stream(lane)

    def standing(self, lane: str) -> Standing:
        """Where the lane stands now, by what it has committed and nothing else."""
        try:
            newest = self.history(lane).manifest()
        except InvalidPipelineError:
            return Standing()
        return Standing(newest.term, newest.epoch, newest.statistics.total_rows_in)

    def folder(self, lane: str) -> Path:
        """Where the store keeps the lane."""
        return self.place / "checkpoints" / lane

    def has_retired(self, lane: str) -> bool:
        """Whether a collector has removed a manifest of the lane."""
        return stream_folder(self._address.open(), lane).exists(TRIMMED)

    def runs(self, lane: str) -> list[Run]:
        """The lane's Dagster runs, newest first. Raises one of `NO_ANSWER`."""
        return [run for run in self.api.runs() if lane_of(run) == lane]

    def at_work(self, lane: str) -> AtWork | None:
        """The processes of the lane's newest run that has any. Raises one of `NO_ANSWER`."""
        for run in self.runs(lane):
            if run.unfinished and (worker := self._worker(run.id)) is not None and worker in self.members():
                return _at_work(run.id, worker, self.spark)
        return None

    def is_finished(self, run: str) -> bool:
        """Whether Dagster has the run ended, in whatever way; False where it does not answer."""
        try:
            return any(each.id == run and not each.unfinished for each in self.api.runs())
        except NO_ANSWER:
            return False

    def members(self) -> set[int]:
        """Every living process of the cluster, orphans included."""
        return self.services.members() | (set() if self.spark is None else self.spark.members())

    def kill(self, *pids: int) -> None:
        """SIGKILL to processes of ours, together; returns when all are dead. Raises ProcessLookupError for others."""
        self._signal(signal.SIGKILL, pids)
        while self.members() & set(pids):
            time.sleep(0.01)

    def stop(self, *pids: int) -> None:
        """SIGSTOP: they stand still until they are woken up, and do not know it."""
        self._signal(signal.SIGSTOP, pids)

    def wake(self, *pids: int) -> None:
        self._signal(signal.SIGCONT, pids)

    def holds_dagsters_database(self, pids: Collection[int]) -> bool:
        """Whether one of the processes is in the middle of writing to Dagster's database."""
        return processes.holds_write_lock(pids, self.place / "home")

    def kill_everything(self) -> None:
        """SIGKILL to every process there is, until there is none."""
        self.services.end()

    def start_everything(self) -> None:
        for service in self.services.all:
            service.start()

    def _signal(self, number: signal.Signals, pids: Iterable[int]) -> None:
        strangers = set(pids) - self.members()
        if strangers:
            raise ProcessLookupError(f"these processes are not ours, or have ended. pids={sorted(strangers)}")
        for pid in pids:
            os.kill(pid, number)

    def _worker(self, run: str) -> int | None:
        """Asked for until it is known; it never changes."""
        if run not in self._workers and (worker := self.api.worker(run)) is not None:
            self._workers[run] = worker
        return self._workers.get(run)


def lane_of(run: Run) -> str:
    """Which lane a Dagster run works for. From the asset's page only one of them is started."""
    return "swept" if run.job == ASSET_JOB else run.job.removesuffix("_job")


def _at_work(run: str, worker: int, spark: SparkCluster | None) -> AtWork:
    below = processes.tree(worker)[1:]
    jvms = [pid for pid in below if processes.program(pid) == "java"]
    steps = [pid for pid in processes.children(worker) if "--multiprocessing-fork" in processes.command(pid)]
    executors = spark.executors(jvms[0]) if spark is not None and jvms else []
    with_tasks = jvms if spark is None else executors
    daemons = [pid for jvm in with_tasks for pid in processes.children(jvm) if "python" in processes.program(pid)]
    return AtWork(
        run,
        worker,
        step=steps[0] if steps else None,
        jvm=jvms[0] if jvms else None,
        python_workers=tuple(pid for daemon in daemons for pid in processes.children(daemon)),
        executors=tuple(executors),
    )
