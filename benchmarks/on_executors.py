"""What an epoch costs as executors and tasks become more: measured on one machine, modelled for a cluster.

    python -m benchmarks.on_executors [--executors 1,4] [--tasks 2,16,64] [--rows 20000] [--rounds 3]

A standalone master and workers are processes of this machine, and each worker has one executor; together they offer a
slot for each of the most tasks. The stream is a running count, sum and maximum of 100,000 keys in 64 shards, in a
shared folder, and each epoch takes `--rows` rows. Streams with other numbers of tasks take turns within a Spark
application; each number of executors has an application of its own.

All share the cores of this machine, so the time of an epoch says little about a cluster. What does is the processor
time: that of the driver (Spark's JVM and the Dagster run's Python) is spent in one place however large the cluster is,
that of the executors is spread over them. Both are read from /proc. That of the driver is fitted by least squares as
`a + b * tasks + c * executors`. With a core for each of its tasks, an epoch takes at least what one of two tasks
takes, and the driver's share for each task and executor beyond these: as if no two of its threads worked at a time.
"""

import argparse
import multiprocessing
import os
import statistics
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table

from benchmarks.inputs import Inbox
from benchmarks.ours import Ours
from benchmarks.plan import Name, Spread
from benchmarks.race import check_results
from benchmarks.session import start
from benchmarks.sides import worked
from dagster_ckpt.storage.stores.kinds import SHARED
from tests.chaos import processes
from tests.servers.machines import Machine
from tests.servers.processes import HOST
from tests.servers.spark_cluster import SparkCluster

KEYS, SHARDS = 100_000, 64
WARM, COUNTED = 5, 25
WARM_TURNS = 2
BEYOND = (64, 256, 1024)


@dataclass(frozen=True)
class Cost:
    """Of an epoch, in milliseconds: its time, and the processor time of the driver and of all executors together."""

    executors: int
    tasks: int
    wall_ms: float
    driver_ms: float
    executors_ms: float


@dataclass(frozen=True)
class Fit:
    """`alone + tasks * each task + executors * each executor`, and how far off it is where it was measured."""

    alone: float
    task: float
    executor: float
    off: float

    def at(self, tasks: int, executors: int) -> float:
        return self.alone + self.task * tasks + self.executor * executors


def fitted(costs: Sequence[Cost], values: Sequence[float]) -> Fit:
    """The least squares' plane through the values, one for each cost; `off`: the root of the mean square."""
    known = np.array([(1, cost.tasks, cost.executors) for cost in costs], dtype=np.float64)
    wanted: npt.NDArray[np.float64] = np.array(values, dtype=np.float64)
    plane, *_ = np.linalg.lstsq(known, wanted, rcond=None)
    alone, task, executor = map(float, plane)
    return Fit(alone, task, executor, off=float(np.sqrt(np.mean((known @ plane - wanted) ** 2))))


def measured(executors: int, tasks: Sequence[int], rows: int, rounds: int, folder: Path) -> list[Cost]:
    """The cost of an epoch with each number of tasks. For a process of its own: it starts a JVM, and reads its time."""
    slots = max(tasks)
    machines = [Machine(f"worker-{number + 1}", HOST) for number in range(executors)]
    cores = -(-slots // executors)
    with SparkCluster(
        Machine("master", HOST), machines, folder / "cluster", cores=cores, memory="2g", environment=_environment()
    ) as cluster:
        spark = start(
            folder,
            {
                "spark.master": cluster.address,
                "spark.executor.cores": str(cores),
                "spark.cores.max": str(cores * executors),
                "spark.executor.memory": "1g",
                "spark.driver.memory": "2g",
                "spark.driver.host": HOST,
            },
        )
        inbox = Inbox(folder / "inbox", KEYS, Spread.UNIFORM)
        sides = {
            each: Ours.totals(
                spark, inbox.folder, folder / f"tasks-{each}", shards=SHARDS, tasks=each, store_options={SHARED: True}
            )
            for each in tasks
        }
        files = inbox.put_each_key(KEYS)
        for side in sides.values():
            worked(Name.OURS, side, files)
        jvm = spark.sparkContext._gateway.proc.pid  # type: ignore[union-attr]  # noqa: SLF001  (PySpark has no name for it)
        watch = Watch(cluster, [os.getpid(), jvm], jvm)
        found: dict[int, list[Cost]] = {each: [] for each in tasks}
        for turn in range(WARM_TURNS + rounds):
            inbox.put(WARM + COUNTED, rows)
            # There and back: JVMs compile their code for long, which makes whatever comes later cheaper.
            for each in [*tasks][:: 1 if turn % 2 else -1]:
                cost = watch.cost(sides[each], executors, each)
                if turn >= WARM_TURNS:
                    found[each].append(cost)
        truth = inbox.truth()
        for each, side in sides.items():
            check_results(f"{each} tasks", side.results(), truth, KEYS)
        spark.stop()
    return [_median(costs) for costs in found.values()]


@dataclass(frozen=True)
class Watch:
    """Reads the processor time that driver and executors have used."""

    cluster: SparkCluster
    driver: Sequence[int]
    jvm: int

    def cost(self, side: Ours, executors: int, tasks: int) -> Cost:
        """Of the epochs that the side works now, beyond the first ones."""
        times: list[tuple[float, float]] = []
        commits = 0

        def seen(_: object) -> None:
            nonlocal commits
            commits += 1
            # One look costs some milliseconds of the driver itself: at the first and the last alone.
            if commits in (WARM, WARM + COUNTED):
                times.append(self._used_ms())

        seconds = side.work(seen)
        if len(seconds) != WARM + COUNTED or len(times) != 2:
            raise RuntimeError(f"not one epoch a file. tasks={tasks}, epochs={len(seconds)}, commits={commits}")
        (driver, workers), (driver_then, workers_then) = times
        return Cost(
            executors,
            tasks,
            statistics.median(seconds[WARM:]) * 1_000,
            (driver_then - driver) / COUNTED,
            (workers_then - workers) / COUNTED,
        )

    def _used_ms(self) -> tuple[float, float]:
        executors = [pid for executor in self.cluster.executors(self.jvm) for pid in processes.tree(executor)]
        return _used(self.driver), _used(executors)


def _used(pids: Sequence[int]) -> float:
    return sum(map(processes.processor_ms, pids))


def _median(costs: Sequence[Cost]) -> Cost:
    first = costs[0]
    columns = zip(*((cost.wall_ms, cost.driver_ms, cost.executors_ms) for cost in costs), strict=True)
    return Cost(first.executors, first.tasks, *map(statistics.median, columns))


def _environment() -> dict[str, str]:
    """Executors have this Python, and everything that it can import."""
    return {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYSPARK_PYTHON": sys.executable}


def report(costs: Sequence[Cost], console: Console) -> None:
    """What was measured, what was fitted, and what that means for more tasks than this machine can run."""
    table = Table("executors", "tasks", "an epoch, p50", "driver's processor time", "executors' processor time")
    for cost in costs:
        shown = (f"{value:.0f} ms" for value in (cost.wall_ms, cost.driver_ms, cost.executors_ms))
        table.add_row(str(cost.executors), str(cost.tasks), *shown)
    console.print(table)
    driver = fitted(costs, [cost.driver_ms for cost in costs])
    console.print(
        f"driver: {driver.alone:.0f} ms + {driver.task:.1f} ms for each task + {driver.executor:.1f} ms for each "
        f"executor; off by {driver.off:.0f} ms"
    )
    most = max(cost.tasks for cost in costs)
    a_task = statistics.median(cost.executors_ms / most for cost in costs if cost.tasks == most)
    console.print(f"executors: {a_task:.0f} ms for each of {most} tasks")
    least = min(costs, key=lambda cost: (cost.executors, cost.tasks))
    model = Table("modelled: tasks", "executors of 8 cores", "driver's processor time", "an epoch takes at least")
    for tasks in BEYOND:
        executors = tasks // 8
        spent = driver.at(tasks, executors)
        more = spent - driver.at(least.tasks, least.executors)
        model.add_row(str(tasks), str(executors), f"{spent:.0f} ms", f"{least.wall_ms + more:.0f} ms")
    console.print(model)


def main() -> None:
    """Measure, and print the tables."""
    asked = argparse.ArgumentParser()
    asked.add_argument("--executors", default="1,4")
    asked.add_argument("--tasks", default="2,16,64")
    asked.add_argument("--rows", type=int, default=20_000)
    asked.add_argument("--rounds", type=int, default=3)
    options = asked.parse_args()
    tasks = [int(each) for each in options.tasks.split(",")]
    console, costs = Console(highlight=False, width=120), list[Cost]()
    for executors in map(int, options.executors.split(",")):
        console.print(f"{executors} executors")
        with (
            tempfile.TemporaryDirectory(prefix="executors-") as folder,
            ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool,
        ):
            costs += pool.submit(measured, executors, tasks, options.rows, options.rounds, Path(folder)).result()
    report(costs, console)


if __name__ == "__main__":
    main()
