"""One seed, one world, one history: everything that happens follows from the number alone.

First all goes wrong that the world's character holds, until enough was asked of the store. Then it becomes calm: all
processes are killed, what was late lands, and each stream, started once more and killed once more, has to come back by
itself. In the end a last writer and two collectors find out whether the stream is whole and nothing was left behind.
"""

import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import blake2b
from random import Random

from dagster_ckpt.ids import StreamUuid
from dagster_ckpt.protocol.coordinator.coordinator import Coordinator, step
from dagster_ckpt.protocol.coordinator.coordinator_events import Effect, Event
from dagster_ckpt.protocol.epochs.pin import Pin
from dagster_ckpt.protocol.lease import ProcessId
from dagster_ckpt.state.objects import create
from dagster_ckpt.storage.chain.manifest_chain import ManifestChain
from dagster_ckpt.storage.operations.collector import Collector
from dagster_ckpt.storage.retention_refs import pins
from dagster_ckpt.storage.stores.object_store import ObjectStore
from dagster_ckpt.storage.stores.retry import Patience
from tests.simulation.calm import Calm
from tests.simulation.character import (
    CHANGED_STEPS,
    FIRST_WITH_CHANGED_STEPS,
    FIRST_WITH_REBUILDS,
    REBUILDS,
    Character,
    character_of,
    with_a_full_store,
    with_echoes,
    with_quiet_epochs,
    with_resharding,
    with_steps,
)
from tests.simulation.clock import ProcessClock
from tests.simulation.collecting import collect_for_others
from tests.simulation.comeback import Comeback
from tests.simulation.dagster import Dagster, launch_by_hand
from tests.simulation.deliveries.database import SimulatedDestination
from tests.simulation.deliveries.delivering import NAME, delivered, delivery_of
from tests.simulation.driver import Driver
from tests.simulation.forking import fork_again_and_again
from tests.simulation.oracle import BrokenPromiseError, Oracle
from tests.simulation.patching import patched
from tests.simulation.readers import pin_again_and_again, read_again_and_again
from tests.simulation.reading import ReadingDriver
from tests.simulation.rebuilding import besides_of, rebuild_again_and_again
from tests.simulation.resharding import reshard_again_and_again
from tests.simulation.restoring import Restoring, restores, with_restores
from tests.simulation.scheduler import BEGINNING_MS, Process, Scheduler
from tests.simulation.sensor_daemon import evaluate_the_sensor
from tests.simulation.store import REFUSES, SimulatedStore, Step, Weather
from tests.simulation.stream import SimulatedStream
from tests.simulation.tasks import Create
from tests.simulation.threads import Threads

RETURN_MS = 20_000
LATER_MS = 5_000
BY_HAND_MS = 20_000
"""The mean time between a user's starts of a delivery: its runs often fail or end."""
CHANGED_STEPS_MS = 40_000
"""The mean time between two deployments of other steps, where there are any."""
CHAINS = 0.33
"""How many worlds have a stream that reads another."""
FORKS = 0.15
"""In how many worlds a user forks the stream."""
CRASH_LOOPS = 0.2
"""In how many worlds the runs of a stream fail whatever is tried."""

Life = Callable[[SimulatedStream, Process], None]


@dataclass(frozen=True)
class Parts:
    """The code under test, piece by piece, so that a test can put a mutant in the place of one."""

    chain: Callable[..., ManifestChain] = ManifestChain
    collector: Callable[..., Collector] = Collector
    driver: Callable[..., Driver] = Driver
    reading_driver: Callable[..., Driver] = ReadingDriver
    create: Create = create
    write_pin: Callable[..., Pin] = pins.write_pin
    destination: Callable[..., SimulatedDestination] = SimulatedDestination
    step: Callable[[Coordinator, Event], tuple[Coordinator, list[Effect]]] = step


@dataclass(frozen=True)
class Outcome:
    """What came of a world, and how often what happened. `rule` is the promise that was broken, `why` all about it."""

    seed: int
    steps: tuple[Step, ...]
    counts: Counter[str]
    rule: str | None = None
    why: str = ""

    @property
    def trace_hash(self) -> str:
        digest = blake2b(digest_size=16)
        for entry in self.steps:
            digest.update(repr(entry).encode())
        return digest.hexdigest()


@dataclass
class World:
    """What all who live in it share."""

    seed: int
    parts: Parts = field(default_factory=Parts)

    def __post_init__(self) -> None:
        self.chance = Random(self.seed)
        character = with_resharding(character_of(self.chance), Random(f"{self.seed} reshard"))
        character = with_a_full_store(character, Random(f"room of {self.seed}"))
        character = with_quiet_epochs(character, Random(f"quiet epochs of {self.seed}"))
        character = with_echoes(character, Random(f"echoes of {self.seed}"))
        character = with_restores(with_steps(character, self.seed), self.seed)
        delivering = Random(f"shop in {self.seed}")
        delivery_character = delivery_of(character, delivering)
        if delivery_character is not None:
            character = delivery_character.tempered(character)
        self.character: Character = character
        self.scheduler = Scheduler()
        self.threads = Threads(self.scheduler)
        self.oracles: dict[StreamUuid, Oracle] = {}
        # Drawn by themselves: a world of one stream is what it was before there were others.
        others = Random(f"streams of {self.seed}")
        self.max_lag = others.choice([4, 20, 60, 10_000])
        first = SimulatedStream(self, "flights/delay_by_carrier")
        self.streams = [first]
        if others.random() < CHAINS:
            self.streams.append(SimulatedStream(self, "flights/late_carriers", upstream=first))
        self.forks: list[SimulatedStream] = []
        forking = Random(f"forks of {self.seed}")
        if forking.random() < FORKS:
            self.forks = [
                SimulatedStream(self, f"flights/what_if_{number}") for number in range(forking.choice([1, 2]))
            ]
        self.besides: list[SimulatedStream] = []
        if self.rebuilds:
            self.besides = [SimulatedStream(self, name) for name in besides_of(first.name)]
            # Slow enough to be caught up with.
            pause_ms = max(self.character.epoch_pause_ms, self.character.grace_ms // 5)
            self.character = replace(self.character, epoch_pause_ms=pause_ms)
        self.weather = Weather(self.scheduler, self.character, self.chance, {})
        self.deliveries = [
            SimulatedStream(self, NAME, upstream=stream, delivery=delivery)
            for delivery, stream in delivered(self, delivery_character, delivering, [*self.streams, *self.forks])
        ]
        self.weather.truths |= {stream.folder: stream.truth for stream in self.all_streams}
        self.processes: list[Process] = []
        self.calm = self.is_over = False
        self.restoring: Restoring | None = None
        self.dagster = Dagster(self)

    @property
    def changes_steps(self) -> bool:
        """Whether the steps of its one stream change at times. The stream has no readers, since a change stops them."""
        alone = len([*self.streams, *self.forks, *self.deliveries]) == 1 and self.character.shape is not None
        chance = Random(f"changed steps of {self.seed}")
        return alone and self.seed >= FIRST_WITH_CHANGED_STEPS and chance.random() < CHANGED_STEPS

    @property
    def rebuilds(self) -> bool:
        """Whether somebody builds its first stream anew beside the live one, over and over."""
        one_step = self.character.shape is None and not self.character.append
        chance = Random(
            f"rebuilds 1496 of {self.seed}"
        )  # such that no seed below that is written down gets another world
        return one_step and self.seed >= FIRST_WITH_REBUILDS and chance.random() < REBUILDS

    @property
    def restores(self) -> bool:
        """Whether people restore its streams from backups. Only readers see that; none may need a stream's files."""
        follows = len(self.streams) > 1 or bool(self.deliveries)
        return follows and not (self.forks or self.besides) and restores(self.seed)

    @property
    def all_streams(self) -> list[SimulatedStream]:
        return [*self.streams, *self.forks, *self.besides, *self.deliveries]

    # ---- what a process is made of

    def process(self, name: str, host: str = "elsewhere") -> Process:
        number, chance = len(self.processes), self.chance
        process = Process(
            self.scheduler,
            f"{name}-{number}",
            number,
            host,
            rate=chance.choice([0.9, 1.0, 1.0, 1.1]),
            offset_ms=chance.randrange(-(10**9), 10**9),
        )
        self.processes.append(process)
        return process

    def root_of(self, process: Process) -> ObjectStore:
        """The whole store, as that process sees it."""
        return SimulatedStore(process, self.weather)

    def clock_of(self, process: Process) -> ProcessClock:
        return ProcessClock(process, self.chance)

    def is_gone(self, process: ProcessId) -> bool:
        """What a look at the own host's processes tells."""
        return process.host == "here" and not self.processes[process.pid].alive

    # ---- from the first event to the last

    def run(self) -> Outcome:
        """Let it all happen."""
        rule, why = None, ""
        with patched(self):
            try:
                self._let_go_wrong()
                self._let_recover()
                self._make_calm()
            except Exception as error:  # noqa: BLE001  (whatever an actor or the oracle raises is what a seed is about)
                rule = getattr(error, "rule", f"nobody meets an error like {type(error).__name__}")
                why = "".join(traceback.format_exception(error))
            for process in self.processes:
                process.kill()
        return Outcome(
            self.seed,
            tuple(self.weather.trace),
            sum((stream.oracle.counts for stream in self.all_streams), self._counts() + self.dagster.counts),
            rule,
            why,
        )

    def _counts(self) -> Counter[str]:
        simulated_s = (self.scheduler.now_ms - BEGINNING_MS) // 1000
        weather = self.weather
        return Counter(
            {
                "requests": weather.requests,
                "simulated s": simulated_s,
                "deleted while full": weather.deleted_while_full,
                "worlds with deliveries": len(self.deliveries),
            }
        )

    def _let_go_wrong(self) -> None:
        character = self.character
        self._keep(self.streams[0], "daemon", lambda _, process: evaluate_the_sensor(self, process))
        for stream in self.streams:
            self._begin(stream)
        self._begin_crash_loops()
        if self.forks:
            self._keep(self.streams[0], "forker", fork_again_and_again)
        if character.reshard_ms:
            self._keep(self.streams[0], "resharder", reshard_again_and_again)
        if self.besides:
            self._keep(self.streams[0], "rebuilder", rebuild_again_and_again)
        if self.restores:
            self.restoring = Restoring(self)
        if self.changes_steps:
            self._now_and_then(CHANGED_STEPS_MS, self.streams[0].change_steps)
        for rate, happen in (
            (character.faults.kill, self._kill),
            (character.faults.freeze, self._freeze),
            (character.faults.outage, self._fail_for_a_while),
            (character.full, self._fill_up),
        ):
            if rate:
                self._now_and_then(round(1_000 / rate), happen)
        actors = 1 + len(self.streams) + bool(self.forks) + 4 * bool(self.besides) + len(self.deliveries)
        requests_max = character.requests_max * actors // 2
        self.scheduler.run(until=lambda: self.weather.requests >= requests_max)

    def _begin(self, stream: SimulatedStream) -> None:
        character = self.character
        stream.begun = True
        self._begin_deliveries(stream)
        if stream.upstream is None:
            self.dagster.launch(stream)
        else:  # mostly after there is something to read
            self.scheduler.after(LATER_MS, lambda: None if self.calm else self.dagster.launch(stream))
        for _ in range(character.collectors):
            self._keep(stream, "janitor", collect_for_others, role="collector")
        if stream.upstream is None:  # of a stream that reads another they would show nothing new
            for _ in range(character.pinners):
                self._keep(stream, "pinner", pin_again_and_again)
            for _ in range(character.readers):
                self._keep(stream, "reader", read_again_and_again)
        self._now_and_then(character.by_hand_every_ms, lambda: launch_by_hand(stream))

    def begin_fork(self, fork: SimulatedStream) -> None:
        """Let it live its own life, from now on: what it does not need of others it has for itself."""
        if fork.begun or self.calm:
            return
        fork.begun = True
        self._begin_deliveries(fork)
        self.dagster.launch(fork)
        self._keep(fork, "janitor", collect_for_others, role="collector")
        self._keep(fork, "pinner", pin_again_and_again)
        self._now_and_then(self.character.by_hand_every_ms, lambda: launch_by_hand(fork))

    def begin_beside(self, beside: SimulatedStream) -> None:
        """Let somebody collect what is built beside a stream, too."""
        if not (beside.begun_beside or self.calm):
            beside.begun_beside = True
            self._keep(beside, "janitor", collect_for_others, role="collector")

    def _begin_deliveries(self, stream: SimulatedStream) -> None:
        for each in self.deliveries:
            if each.upstream is stream and each.delivery is not None:
                self.scheduler.after(LATER_MS, partial(self._begin_delivery, each))
                each.delivery.begin()

    def _begin_delivery(self, stream: SimulatedStream) -> None:
        if not self.calm:
            stream.begun = True
            self.dagster.launch(stream)
            self._now_and_then(BY_HAND_MS, lambda: launch_by_hand(stream))

    def _begin_crash_loops(self) -> None:
        """For some time each run of the first stream fails, or dies: until its code is mended, say."""
        chance = Random(f"crash loops of {self.seed}")
        if chance.random() < CRASH_LOOPS:
            kind, stream = chance.choice(["error", "killed"]), self.streams[0]
            self.scheduler.after(chance.randrange(20_000), lambda: self._begin_crash_loop(stream, kind))

    def _begin_crash_loop(self, stream: SimulatedStream, kind: str) -> None:
        if not self.calm:
            stream.crash_loop = kind

    def _let_recover(self) -> None:
        """Nothing goes wrong any more. A person starts every stream; killed once, each comes back by itself."""
        self.calm = self.weather.calm = True
        if self.restoring is not None:
            self.restoring.end()
        self.weather.room = None
        for process in self.processes:
            process.kill()
        self.weather.land_all()
        for stream in self.deliveries:
            assert stream.delivery is not None
            stream.delivery.make_calm()
        daemon = self.process("daemon")
        daemon.spawn("daemon", lambda: evaluate_the_sensor(self, daemon))
        comebacks = [Comeback(stream) for stream in self.all_streams if stream.begun]
        self.scheduler.run(until=lambda: all(each.is_done for each in comebacks))
        for process in self.processes:
            process.kill()

    def _make_calm(self) -> None:
        self.is_over = True
        self.weather.land_all()
        ends: list[Calm] = []
        for fork in reversed(self.forks):  # a fork may be one of an earlier one
            if fork.oracle.newest is not None:  # else it never came
                ends.append(Calm(fork, tuple(ends)))
        ends += [Calm(stream, tuple(ends)) for stream in self.streams[:1]]
        ends += [Calm(stream) for stream in (*self.streams[1:], *self.deliveries) if stream.begun]
        # Their files are read by all others, also by those that were forked since.
        ends += [Calm(stream, tuple(ends)) for stream in self.besides if stream.oracle.newest is not None]
        self.scheduler.run(until=lambda: _are_over(ends))
        if not _are_over(ends):
            raise BrokenPromiseError("every world comes to its end", "nothing happens any more")

    def _keep(self, stream: SimulatedStream, name: str, live: Life, role: str | None = None) -> None:
        """Somebody who does one thing for ever, and comes back some time after each death."""
        process = self.process(name)
        process.spawn(role or name, lambda: live(stream, process))
        process.on_end.append(
            lambda: self.scheduler.after(RETURN_MS, lambda: self._come_back(stream, name, live, role))
        )

    def _come_back(self, stream: SimulatedStream, name: str, live: Life, role: str | None) -> None:
        if not self.calm:
            self._keep(stream, name, live, role)

    def _now_and_then(self, every_ms: int, happen: Callable[[], None]) -> None:
        def again() -> None:
            if not self.calm:
                happen()
                self._now_and_then(every_ms, happen)

        self.scheduler.after(round(self.chance.expovariate(1 / every_ms)), again)

    def _anybody(self) -> Process:
        alive = [process for process in self.processes if process.alive]
        return self.chance.choice(alive or self.processes)

    def _kill(self) -> None:
        process = self._anybody()
        self.weather.record("killer", "kill", process.name, "")
        process.kill()

    def _freeze(self) -> None:
        process, duration_ms = self._anybody(), self._pause_ms()
        self.weather.record("killer", "freeze", process.name, f"{duration_ms}")
        process.freeze(duration_ms)

    def _fail_for_a_while(self) -> None:
        whose = self.chance.choice([None, self._anybody()])
        duration_ms = self._pause_ms()
        self.weather.record("store", "down", "everybody" if whose is None else whose.name, f"{duration_ms}")
        self.weather.down_until_ms[None if whose is None else whose.number] = self.scheduler.now_ms + duration_ms

    def _fill_up(self) -> None:
        """The store takes no writes for a while, whoever asks."""
        if self.weather.room is not None:
            return
        self.weather.room, duration_ms = self.chance.choice([0, 0, REFUSES]), self._pause_ms()
        self.weather.record("store", "full", f"{self.weather.room}", f"{duration_ms}")
        self.scheduler.after(duration_ms, self._enlarge)

    def _enlarge(self) -> None:
        self.weather.room = None

    def _pause_ms(self) -> int:
        return int(self.chance.choice(self.character.faults.pauses_ms) * (0.5 + self.chance.random()))

    def patient_chain(self, store: ObjectStore, clock: ProcessClock, patience: Patience | None = None) -> ManifestChain:
        return self.parts.chain(store, clock, self.character.patience)


def _are_over(ends: list[Calm]) -> bool:
    """Asked again and again: those that are over are no longer looked at."""
    while ends and ends[-1].is_over:
        ends.pop()
    return not ends
