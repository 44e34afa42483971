"""`python -m tests.chaos.on_spark` kills streams whose executors are on a standalone cluster of Spark, and its parts.

A world is a store with settings of Spark: each has a Dagster, a master and two workers of its own, and its share of the
kills. The driver of each stream is its Dagster run, as ever.
"""

import json
import os
import random
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import click
from rich.console import Console

from benchmarks import facts
from dagster_ckpt.storage.stores.address import StoreAddress
from demo.dagster_dev import JAVA
from tests.chaos.__main__ import in_rounds, play
from tests.chaos.cluster import Cluster
from tests.chaos.feeder import Feeder
from tests.chaos.lanes import LANES_VARIABLE, SPARK_VARIABLE, STORE_VARIABLE
from tests.chaos.progress import Counting, counting
from tests.chaos.results import read, summary
from tests.chaos.rounds import Rounds
from tests.chaos.services import ROOT
from tests.chaos.strikes import Kind
from tests.servers.machines import Network, enter_namespaces, remove_tree
from tests.servers.spark_cluster import SparkCluster
from tests.worlds import s3_server

WORK = ROOT / ".work"
EXECUTORS = "DAGSTER_CKPT_TEST_EXECUTORS"
"""The environment variable with the folder of a Python for executors (`scripts/executors.sh`)."""

USERS = ("master", "worker-1", "worker-2", "dagster")
CORES, MEMORY = 4, "4g"
"""Of a worker, as it offers them. A driver that is stopped keeps its executors while its successor needs others."""

KINDS = (
    Kind.EXECUTOR,
    Kind.SPARK_WORKER,
    Kind.MASTER,
    Kind.DECOMMISSION,
    Kind.STALL,
    Kind.PYTHON,
    Kind.JVM,
    Kind.WORKER,
    Kind.STOP,
)


@dataclass(frozen=True)
class World:
    """`on_s3`: the store is on a real S3 server, else in a folder that all machines share."""

    on_s3: bool
    settings: Mapping[str, str] = field(default_factory=dict)


WORLDS: Mapping[str, World] = {
    "plain": World(on_s3=False),
    "speculation": World(
        on_s3=True,
        settings={
            "spark.speculation": "true",
            "spark.speculation.interval": "100ms",
            "spark.speculation.minTaskRuntime": "0ms",
            "spark.speculation.multiplier": "1.1",
            "spark.speculation.quantile": "0.5",
        },
    ),
    "dynamic": World(
        on_s3=False,
        settings={
            "spark.dynamicAllocation.enabled": "true",
            "spark.dynamicAllocation.shuffleTracking.enabled": "true",
            "spark.dynamicAllocation.minExecutors": "0",
            "spark.dynamicAllocation.maxExecutors": "2",
            "spark.dynamicAllocation.executorIdleTimeout": "1s",
            "spark.dynamicAllocation.shuffleTracking.timeout": "1s",
        },
    ),
    "decommission": World(
        on_s3=True,
        settings={
            "spark.decommission.enabled": "true",
            "spark.storage.decommission.enabled": "true",
            "spark.storage.decommission.shuffleBlocks.enabled": "true",
        },
    ),
}

console = Console(highlight=False, soft_wrap=True)


@click.command()
@click.option("--kills", default=40, show_default=True, help="How many in all worlds together.")
@click.option("--seed", type=int, default=None, help="Chooses kinds, lanes and moments; drawn and shown if not given.")
@click.option(
    "--overlap", default=0.25, show_default=True, help="How often, of one, the next does not wait for recovery."
)
@click.option("--lanes", default="keyed,appended", show_default=True, help="The streams under fire.")
@click.option("--kinds", default=",".join(KINDS), show_default=True, help="The kinds of kills.")
@click.option("--worlds", default=",".join(WORLDS), show_default=True, help="Stores and settings of Spark.")
@click.option("--results", type=click.Path(path_type=Path), default=WORK / "chaos-cluster.jsonl", help="Appended to.")
@click.option("--summary", "only_summary", is_flag=True, help="Show what is in the results, and kill nothing.")
def main(
    kills: int, seed: int | None, overlap: float, lanes: str, kinds: str, worlds: str, results: Path, only_summary: bool
) -> None:
    """Kill parts of a cluster of Spark at random moments and compare every table with a batch computation."""
    if not only_summary:
        enter_namespaces()
        for number in (signal.SIGINT, signal.SIGTERM):  # past all that has to be ended, as Ctrl-C
            signal.signal(number, signal.default_int_handler)
        names, chosen = worlds.split(","), [Kind(kind) for kind in kinds.split(",")]
        if not set(names) <= set(WORLDS):
            raise click.UsageError(f"no such world. worlds={names}, there={[*WORLDS]}")
        seed = random.randrange(2**32) if seed is None else seed
        place = WORK / "cluster" / f"{datetime.now(UTC):%Y-%m-%dT%H-%M-%S}"
        place.mkdir(parents=True)
        console.print(f"seed {seed}; the cluster and its logs are in {place.relative_to(ROOT)}")
        _kill_all(place, names, _shares(kills, len(names)), Plan(seed, overlap, lanes.split(","), chosen, results))
        remove_tree(place)
    for by in ("world", "kind"):
        console.print(summary(read(results), by))


@dataclass(frozen=True)
class Plan:
    """What is done in each world."""

    seed: int
    overlap: float
    lanes: Sequence[str]
    kinds: Sequence[Kind]
    results: Path


def _kill_all(place: Path, names: Sequence[str], shares: Sequence[int], plan: Plan) -> None:
    os.umask(0o002)  # what this process writes to a shared folder is its group's
    with Network(place / "machines") as network, counting(console, sum(shares)) as progress:
        network.add_users(USERS, Path(sys.executable))
        progress.tell(f"the machines are {network.describe()}")
        for name, kills in zip(names, shares, strict=True):
            progress.tell(f"world {name}")
            wrong = _kill_in(network, place / name, name, kills, plan, progress)
            if wrong:
                console.print(f"[red]{wrong} rows are wrong[/]; kept: {place.relative_to(ROOT)}")
                sys.exit(1)


def _kill_in(network: Network, place: Path, name: str, kills: int, plan: Plan, progress: Counting) -> int:
    place.mkdir()
    world, machines = WORLDS[name], [network.machine(each) for each in USERS[:3]]
    with ExitStack() as opened:
        store = StoreAddress(network.share(place / "checkpoints").as_uri(), {"shared": True})
        if world.on_s3:
            (place / "s3").mkdir()
            store = opened.enter_context(s3_server.running(place / "s3", network.address)).empty()
        conf = {"spark.decommission.enabled": "true"}
        spark = opened.enter_context(
            SparkCluster(machines[0], machines[1:], place / "spark-cluster", CORES, MEMORY, conf)
        )
        settings = {
            "spark.master": spark.address,
            "spark.cores.max": "2",
            "spark.executor.cores": "1",
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": JAVA,
            "spark.pyspark.python": str(Path(os.environ[EXECUTORS], "bin", "python")),
            "spark.driver.host": network.address,
            "spark.driver.bindAddress": network.address,
            **world.settings,
        }
        environment = {
            LANES_VARIABLE: ",".join(plan.lanes),
            STORE_VARIABLE: json.dumps([store.url, dict(store.options)]),
            SPARK_VARIABLE: json.dumps(settings),
            "SPARK_LOCAL_IP": network.address,
            "HOME": str(place / "home"),
        }
        cluster = opened.enter_context(
            Cluster(place, environment, store=store, spark=spark, user=network.users.get("dagster"))
        )
        feeder = opened.enter_context(Feeder(place))
        seed = f"{plan.seed} {name}"  # so that each world meets other choices
        rounds = Rounds(cluster, feeder, random.Random(seed), plan.overlap, plan.lanes, tell=progress.tell)
        about = {
            "seed": plan.seed,
            "overlap": plan.overlap,
            "commit": facts.commit(ROOT),
            "world": name,
            "namespaces": network.is_namespaced,
        }
        return play(rounds, in_rounds(kills, plan.kinds, random.Random(seed)), about, plan.results, progress)


def _shares(kills: int, worlds: int) -> list[int]:
    """The kills of each world, as equal as they can be."""
    return [kills // worlds + (number < kills % worlds) for number in range(worlds)]


if __name__ == "__main__":
    main()
