"""What is done to the cluster, and how each is carried out: SIGKILL to one process or all, or a long SIGSTOP.

A strike hurts lanes: those that cannot commit before somebody has acted. It is over when each has committed again.
"""

import random
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from tests.chaos import processes
from tests.chaos.cluster import NO_ANSWER, AtWork, Cluster, Standing
from tests.chaos.lanes import CONTINUOUS, LANES
from tests.chaos.services import Service

RESTART_S = 1.0
"""What a service manager waits before it starts a service again."""


class Kind(StrEnum):
    """Who is struck."""

    PYTHON = "python"  # one of Spark's Python workers, which write the state
    JVM = "jvm"
    STEP = "step"  # the step's own process, of a run started from the asset's page
    WORKER = "worker"  # the Dagster run's worker
    CODE_SERVER = "code_server"
    DAEMON = "daemon"
    EVERYTHING = "everything"
    STOP = "stop"  # not killed: stopped for longer than its lease, then woken up
    EXECUTOR = "executor"  # one of the JVMs that Spark's workers have started for the stream
    SPARK_WORKER = "spark_worker"  # a worker of a standalone cluster, with a machine of its own
    MASTER = "master"
    DECOMMISSION = "decommission"  # a machine is announced to go, goes and comes back
    STALL = "stall"  # an executor and its Python stand still for some seconds


ON_SPARK = frozenset({Kind.EXECUTOR, Kind.SPARK_WORKER, Kind.MASTER, Kind.DECOMMISSION, Kind.STALL})
"""Those that only a cluster of Spark can meet."""


class Wakes(StrEnum):
    """What a zombie finds when it wakes up."""

    DECLARED = "declared"  # Dagster has its run failed; nobody has taken the stream yet
    OPENED = "opened"
    COMMITTED = "committed"


LANES_OF: Mapping[Kind, tuple[str, ...]] = {
    Kind.PYTHON: tuple(LANES),
    Kind.JVM: tuple(LANES),
    Kind.STEP: ("swept",),
    Kind.WORKER: tuple(LANES),
    Kind.CODE_SERVER: CONTINUOUS,
    Kind.DAEMON: CONTINUOUS,
    Kind.EVERYTHING: CONTINUOUS,
    Kind.STOP: CONTINUOUS,
    **dict.fromkeys(ON_SPARK, CONTINUOUS),
}
"""The lanes from which a strike of each kind chooses; everything hurts all of them."""


class NoTargetError(Exception):
    """There is no such process at the moment."""


@dataclass
class Strike:
    """One that was made. Times are of the monotonic clock, `before` is where the lanes stood once the target was dead.

    `also`: what else was struck at once. `seconds` is how long it took until every lane that it hurt had committed
    again, None as long as one has not.
    """

    kind: Kind
    before: Mapping[str, Standing]
    at_s: float
    also: str = ""
    seconds: float | None = None
    zombie: "Zombie | None" = None

    @property
    def name(self) -> str:
        """The kind, with what else was struck."""
        return f"{self.kind}+{self.also}" if self.also else str(self.kind)

    @property
    def is_over(self) -> bool:
        return self.seconds is not None and (self.zombie is None or self.zombie.has_ended)

    def look(self, cluster: Cluster) -> None:
        """See whether it is over."""
        if self.seconds is None and all(
            self._goes_on(cluster.standing(lane), was) for lane, was in self.before.items()
        ):
            self.seconds = time.monotonic() - self.at_s
        if self.zombie is not None:
            self.zombie.look(cluster)

    def _goes_on(self, now: Standing, was: Standing) -> bool:
        # What a zombie commits in between, as it may while nobody else has opened the stream, is no recovery.
        return now.epoch > was.epoch and (self.zombie is None or now.term > was.term)


@dataclass
class Zombie:
    """A writer that stands still while the sensor finds its lease lapsed, and is then woken up.

    It is woken up at `not_before_s` at the earliest, and when Dagster has its run declared dead, the successor has
    opened the stream, or the successor has committed: as `wakes` says.
    """

    lane: str
    work: AtWork
    pids: tuple[int, ...]
    term: int
    epoch: int
    not_before_s: float
    wakes: "Wakes"
    woken: bool = False
    has_ended: bool = False
    errors: list[str] = field(default_factory=list)

    def look(self, cluster: Cluster) -> None:
        if not self.woken:
            if time.monotonic() >= self.not_before_s and self._is_due(cluster):
                # What has died meanwhile with the process that was its parent need not be woken.
                cluster.wake(*cluster.members().intersection(self.pids))
                self.woken = True
        elif not self.has_ended and not cluster.members().intersection(self.pids):
            try:
                self.errors = cluster.api.step_errors(self.work.run)
            except NO_ANSWER:
                return
            self.has_ended = True

    @property
    def was_fenced(self) -> bool:
        """Whether its Dagster run ended with the error that says so."""
        return any("FencedError" in error for error in self.errors)

    def _is_due(self, cluster: Cluster) -> bool:
        match self.wakes:
            case Wakes.DECLARED:
                return cluster.is_finished(self.work.run)
            case Wakes.OPENED:
                return cluster.standing(self.lane).term > self.term
            case Wakes.COMMITTED:
                now = cluster.standing(self.lane)
                return now.term > self.term and now.epoch > self.epoch


def strike(
    kind: Kind,
    cluster: Cluster,
    chance: random.Random,
    spared: Collection[str],
    among: Collection[str] | None = None,
) -> Strike:
    """Make a strike of a kind, on a lane that chance chooses. Raises `NoTargetError`: then nothing was done.

    The processes of the lanes `spared` are not struck: they recover from a strike, or hold a zombie. `among`: the lanes
    to choose from, where they are others than those of `LANES_OF`.
    """
    lanes = list(LANES_OF[kind] if among is None else among)
    chance.shuffle(lanes)
    lanes = [lane for lane in lanes if lane not in spared]
    match kind:
        case Kind.EVERYTHING:
            return _everything(cluster, lanes)
        case Kind.CODE_SERVER:
            return _service(kind, cluster, cluster.services.code_server, lanes, chance)
        case Kind.DAEMON:
            return _service(kind, cluster, cluster.services.daemon, lanes, chance)
        case Kind.STOP:
            return _stop(cluster, lanes, chance)
        case _ if kind in ON_SPARK:
            return _on_spark(kind, cluster, lanes, chance)
        case _:
            return _process(kind, cluster, lanes, chance)


def _on_spark(kind: Kind, cluster: Cluster, lanes: list[str], chance: random.Random) -> Strike:
    match kind:
        case Kind.EXECUTOR | Kind.STALL:
            return _executor(kind, cluster, lanes, chance)
        case Kind.MASTER:
            return _master(cluster, lanes)
        case _:
            return _machine(kind, cluster, lanes, chance)


def _process(kind: Kind, cluster: Cluster, lanes: list[str], chance: random.Random) -> Strike:
    def chosen(work: AtWork) -> int | None:
        match kind:
            case Kind.PYTHON:
                return chance.choice(work.python_workers) if work.python_workers else None
            case Kind.JVM:
                return work.jvm
            case Kind.STEP:
                return work.step
            case _:
                return work.worker

    lane, pid = _target(cluster, lanes, chosen)
    return _killed(kind, cluster, [lane], pid)


def _service(kind: Kind, cluster: Cluster, service: Service, lanes: list[str], chance: random.Random) -> Strike:
    """Kill a service, and half of the time the run worker of a lane while it is down; then start it again."""
    if not lanes:
        raise NoTargetError  # how long it takes until a lane commits would say nothing of this strike
    workers = [_target(cluster, lanes[:1], lambda work: work.worker)] if chance.random() < 0.5 else []
    service.kill()
    try:
        for lane, worker in workers:
            made = _killed(kind, cluster, [lane], worker)
            made.also = "worker"
            return made
        return _killed(kind, cluster, lanes)
    finally:
        time.sleep(RESTART_S)
        service.start()


def _everything(cluster: Cluster, lanes: list[str]) -> Strike:
    at_s = time.monotonic()
    cluster.kill_everything()
    before = {lane: cluster.standing(lane) for lane in lanes}
    time.sleep(RESTART_S)
    cluster.start_everything()
    return Strike(Kind.EVERYTHING, before, at_s)


def _stop(cluster: Cluster, lanes: list[str], chance: random.Random) -> Strike:
    """Stop the driver alone, or it and all below it, as a host that is paused stops them."""
    lane, driver = _target(cluster, lanes, lambda work: work.driver if work.python_workers else None)
    work = cluster.at_work(lane)
    if work is None or work.driver != driver:
        raise NoTargetError
    pids = (driver,) if chance.random() < 0.5 else tuple(reversed(processes.tree(work.worker)))
    at_s = time.monotonic()
    try:
        cluster.stop(*pids)
    except ProcessLookupError:
        # One of them has just ended, as Python workers do. None of the others may stay behind.
        cluster.wake(*cluster.members().intersection(pids))
        raise NoTargetError from None
    if cluster.holds_dagsters_database(pids):
        # On SQLite that stops all of Dagster until the process goes on or dies: nobody could even report it dead.
        cluster.wake(*pids)
        raise NoTargetError
    before = cluster.standing(lane)
    zombie = Zombie(
        lane,
        work,
        tuple({*pids, driver}),
        before.term,
        before.epoch,
        not_before_s=at_s + chance.uniform(4, 20),
        wakes=chance.choice(list(Wakes)),
    )
    return Strike(Kind.STOP, {lane: before}, at_s, zombie=zombie)


def _executor(kind: Kind, cluster: Cluster, lanes: list[str], chance: random.Random) -> Strike:
    """Kill an executor, or stop it with its Python, as a host that is paused for a while stops them."""
    lane, executor = _target(cluster, lanes, lambda work: chance.choice(work.executors) if work.executors else None)
    if kind is Kind.EXECUTOR:
        return _killed(kind, cluster, [lane], executor)
    at_s, pids = time.monotonic(), processes.tree(executor)
    try:
        cluster.stop(*pids)
    except ProcessLookupError:
        cluster.wake(*cluster.members().intersection(pids))
        raise NoTargetError from None
    timer = threading.Timer(chance.uniform(3, 8), lambda: cluster.wake(*cluster.members().intersection(pids)))
    timer.daemon = True
    timer.start()
    return Strike(kind, {lane: cluster.standing(lane)}, at_s)


def _master(cluster: Cluster, lanes: list[str]) -> Strike:
    assert cluster.spark is not None, "only a cluster of Spark has a master"
    if not lanes:
        raise NoTargetError
    at_s = time.monotonic()
    cluster.spark.master.kill()
    before = {lane: cluster.standing(lane) for lane in lanes}
    time.sleep(RESTART_S)
    cluster.spark.master.start()
    return Strike(Kind.MASTER, before, at_s)


def _machine(kind: Kind, cluster: Cluster, lanes: list[str], chance: random.Random) -> Strike:
    """Take a worker's machine away, with all of its executors, and give it back.

    A decommissioned one is asked to go first, and is given some seconds for it.
    """
    spark = cluster.spark
    assert spark is not None, "only a cluster of Spark has workers"
    lane, executor = _target(cluster, lanes, lambda work: chance.choice(work.executors) if work.executors else None)
    try:
        part = spark.worker_of(executor)
    except ProcessLookupError:
        raise NoTargetError from None
    at_s = time.monotonic()
    if kind is Kind.DECOMMISSION:
        spark.decommission(part)
        time.sleep(chance.uniform(1, 5))
    spark.kill_machine(part)
    before = {lane: cluster.standing(lane)}
    time.sleep(RESTART_S)
    part.start()
    return Strike(kind, before, at_s)


def _target(cluster: Cluster, lanes: list[str], chosen: Callable[[AtWork], int | None]) -> tuple[str, int]:
    """The first of the lanes that has such a process, and the process."""
    for lane in lanes:
        try:
            work = cluster.at_work(lane)
        except NO_ANSWER:
            continue
        pid = None if work is None else chosen(work)
        if pid is not None:
            return lane, pid
    raise NoTargetError


def _killed(kind: Kind, cluster: Cluster, lanes: list[str], *pids: int) -> Strike:
    at_s = time.monotonic()
    try:
        cluster.kill(*pids)
    except ProcessLookupError:
        raise NoTargetError from None
    # Read when they are dead: what they committed with their last breath counts as before.
    return Strike(kind, {lane: cluster.standing(lane) for lane in lanes}, at_s)
