"""Who is killed in the demo: run workers, the broker, the database; and when what they were needed for goes on."""

import random
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from dagster_ckpt import CheckpointStore
from demo.dagster_dev import DagsterDev
from demo.kafka.servers import Servers
from demo.processes import kill, members
from demo.standing import standing
from tests.servers.processes import Killable

PAUSE_S = (3.0, 7.0)
"""The least and the most between two kills; none waits until the one before is over."""

RESTART_S = 1.0
"""How long a killed server is away before it is started again."""


@dataclass
class Kill:
    """One kill. `before`: rows of each delivery that waits for what was killed; `seconds` until each has delivered."""

    victim: str
    at_s: float
    before: Mapping[str, int]
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def is_over(self) -> bool:
        return self.seconds.keys() >= self.before.keys()


@dataclass
class Victims:
    """Kills each of the `left` once, in an order and at moments of chance.

    `waits` has for each stream, delivery and server the deliveries that stand still without it. `say` reports what
    happens: its topic, then the text.
    """

    dagster: DagsterDev
    store: CheckpointStore
    servers: Servers
    waits: Mapping[str, Sequence[str]]
    chance: random.Random
    say: Callable[[str, str], None]
    kills: list[Kill] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.left = self.chance.sample([*self.waits], len(self.waits))
        self._due_s = time.monotonic() + self.chance.uniform(*PAUSE_S)
        self._pool = ThreadPoolExecutor()
        self._restarts: list[Future[None]] = []

    @property
    def are_over(self) -> bool:
        """Whether all were killed, and what they were needed for goes on."""
        return not self.left and all(each.is_over for each in self.kills)

    def look(self, now_s: float) -> None:
        """See what goes on again, and kill the next one if it is time. `now_s` is a monotonic clock's."""
        for restart in self._restarts:
            if restart.done():
                restart.result()
        for each in self.kills:
            if not each.is_over:
                self._see(each, now_s)
        if self.left and now_s >= self._due_s and self._strike(self.left[0]):
            del self.left[0]
            self._due_s = now_s + self.chance.uniform(*PAUSE_S)

    def finish(self) -> None:
        """Until every server is up again."""
        for restart in self._restarts:
            restart.result()

    def _see(self, kill_: Kill, now_s: float) -> None:
        for delivery in kill_.before.keys() - kill_.seconds.keys():
            if self._rows(delivery) > kill_.before[delivery]:
                kill_.seconds[delivery] = now_s - kill_.at_s
        if kill_.is_over:
            waited = "it delivers" if len(kill_.before) == 1 else "all that waited for it deliver"
            self.say("recovery", f"{kill_.victim}: {waited} again, {max(kill_.seconds.values()):.1f} s after the kill")

    def _strike(self, victim: str) -> bool:
        """Whether it was there to be killed."""
        match victim:
            case "broker":
                self._kill_server(self.servers.broker)
                what = "the broker"
            case "database":
                self._kill_server(self.servers.database)
                what = "every process of the database"
            case _:
                worker = self._worker(victim)
                if worker is None:
                    return False
                kill(worker, self.dagster.session)
                what = f"the run worker of {victim}"
        at_s = time.monotonic()
        # Read when it is dead: what it committed with its last breath counts as before.
        self.kills.append(Kill(victim, at_s, {each: self._rows(each) for each in self.waits[victim]}))
        self.say("kill", f"SIGKILL to {what}")
        return True

    def _kill_server(self, server: Killable) -> None:
        server.kill()
        self._restarts.append(self._pool.submit(self._restart, server))

    @staticmethod
    def _restart(server: Killable) -> None:
        time.sleep(RESTART_S)
        server.start()

    def _worker(self, stream: str) -> int | None:
        """The process that works for the stream or delivery now; None where there is none."""
        alive = {*members(self.dagster.session)}
        for run in self.dagster.api.runs():
            if run.job == f"{stream}_job" and run.unfinished:
                worker = self.dagster.api.worker(run.id)
                return worker if worker in alive else None
        return None

    def _rows(self, delivery: str) -> int:
        return standing(self.store, delivery).rows
