"""One delivery of a world: where it goes, how it runs, and what happens to its destination."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random
from typing import TYPE_CHECKING

from dagster_ckpt.delivery.destination import DeliveryMode
from dagster_ckpt.errors import IncompatibleStateError, StoreUnavailableError
from dagster_ckpt.ids import StreamUuid
from dagster_ckpt.protocol.drain_request import DrainRequest
from dagster_ckpt.protocol.epochs.upstream import backfill_pins
from dagster_ckpt.protocol.object_names import PINS, subscriber_name
from dagster_ckpt.storage.writer.drain_requests import write_drain
from tests.simulation.character import Character, Faults, gentle
from tests.simulation.deliveries.database import Database, Line
from tests.simulation.deliveries.delivery_oracle import DeliveryOracle
from tests.simulation.store import Weather

if TYPE_CHECKING:
    from tests.simulation.stream import SimulatedStream
    from tests.simulation.world import World

DELIVERIES = 0.25
"""In how many worlds a stream is delivered."""
GENTLE = 0.7
"""In how many of these the store nearly always answers: so the destination is what goes wrong."""
NAME = "flights/delays_in_shop"


@dataclass(frozen=True)
class DeliveryCharacter:
    """A delivery's constants. Times are those of the world; each `*_every_ms` is 0 where it never happens.

    `number` is which stream is delivered, of those that the world has. A snapshot is read in `parts`. A run ends by
    itself after `commits_max` transactions. In a `gentle` world the store nearly always answers.
    """

    number: int
    mode: DeliveryMode
    epochs_max: int
    interval_ms: int
    parts: tuple[int, ...]
    commits_max: int
    tolerated: int
    faults: Faults
    echo: float
    death: float
    long: float
    down_every_ms: int
    back_up_every_ms: int
    restore_every_ms: int
    empty_every_ms: int
    drain_every_ms: int
    kill_every_ms: int
    recreate_ms: int
    epoch_pause_ms: int
    gentle: bool

    def tempered(self, character: Character) -> Character:
        """The character of the world around it."""
        return gentle(character, self.epoch_pause_ms, 2_000) if self.gentle else character


def delivery_of(character: Character, chance: Random) -> DeliveryCharacter | None:
    """Drawn so that deliveries differ much; None for a world without one."""
    if chance.random() >= DELIVERIES:
        return None

    def rate(*rates: float) -> float:
        return chance.choice(rates) if chance.random() < 0.6 else 0.0

    def every(*times: int) -> int:
        return chance.choice(times) if chance.random() < 0.3 else 0

    number = chance.randrange(4)
    gentle = chance.random() < GENTLE
    seconds = 1_000 if gentle else 4_000  # where the store fails too, all takes longer
    return DeliveryCharacter(
        number=number,
        mode=chance.choice(list(DeliveryMode)),
        epochs_max=chance.choice([1, 2, 3, 100]),
        interval_ms=chance.choice([500, 2_000, character.grace_ms // 2]),
        parts=chance.choice([(1,), (2, 3)]),
        commits_max=chance.choice([3, 10, 1_000]),
        tolerated=chance.choice([0, 3, 10]),
        faults=replace(
            character.faults,
            lost_request=rate(0.02, 0.1),
            lost_reply=rate(0.05, 0.2),
            late=rate(0.05, 0.2),
            pause=rate(0.02, 0.1),
        ),
        echo=rate(0.1, 0.3),
        death=rate(0.05, 0.2),
        long=rate(0.1, 0.3),
        down_every_ms=every(20, 60) * seconds,
        back_up_every_ms=chance.choice([5, 20]) * seconds,
        restore_every_ms=every(30, 100) * seconds,
        empty_every_ms=every(100, 200) * seconds,
        drain_every_ms=every(30, 100) * seconds,
        kill_every_ms=every(15, 40) * seconds,
        recreate_ms=every(60, 120) * seconds,
        epoch_pause_ms=chance.choice([1_000, 3_000, 8_000]),
        gentle=gentle,
    )


@dataclass
class Delivering:
    """What makes a stream of the world a delivery: beside being one, it has a destination."""

    world: "World"
    character: DeliveryCharacter
    chance: Random
    line: Line = field(init=False)
    stream: "SimulatedStream" = field(init=False)
    former: list[StreamUuid] = field(default_factory=list)

    def __post_init__(self) -> None:
        world, character = self.world, self.character
        faults = replace(world.character, faults=character.faults)
        weather = Weather(world.scheduler, faults, self.chance, {}, trace=world.weather.trace)
        # Of the judge that there is then: another one comes with another folder.
        database = Database(lambda *what: self.oracle.destination_changed(*what))  # noqa: PLW0108
        around = world.character
        longs_ms = (2 * around.lease_timeout_ms, 2 * around.grace_ms, 5 * around.grace_ms)
        self.line = Line(database, weather, self.chance, character.echo, character.death, character.long, longs_ms)

    @property
    def mode(self) -> DeliveryMode:
        """A table that only grows has no key."""
        upstream = self.stream.upstream
        grows = self.world.character.append and upstream is not None and upstream.upstream is None
        return DeliveryMode.APPEND if grows else self.character.mode

    @property
    def database(self) -> Database:
        return self.line.database

    @property
    def oracle(self) -> DeliveryOracle:
        oracle = self.stream.oracle
        assert isinstance(oracle, DeliveryOracle)
        return oracle

    @property
    def upstream(self) -> "SimulatedStream":
        assert self.stream.upstream is not None
        return self.stream.upstream

    # ---- what happens to it

    def begin(self) -> None:
        """Start the users, and what goes wrong."""
        character = self.character
        for every_ms, happen in (
            (character.down_every_ms, self._fail_for_a_while),
            (character.back_up_every_ms, self._back_up),
            (character.restore_every_ms, self._restore),
            (character.empty_every_ms, self._empty),
            (character.kill_every_ms, self._kill),
            (character.drain_every_ms, self._drain),
        ):
            if every_ms:
                self._now_and_then(every_ms, happen)
        world = self.world
        if character.recreate_ms and len(world.all_streams) == 2:
            world.scheduler.after(round(character.recreate_ms * (0.5 + self.chance.random())), self._recreate)

    def make_calm(self) -> None:
        weather = self.line.weather
        weather.calm = True
        weather.land_all()
        weather.down_until_ms.clear()

    def unsubscribe(self) -> None:
        """Remove what the stream keeps for deliveries whose folders were removed.

        A request of a killed run may arrive after that: each collector then warns until a person unsubscribes again.
        """
        for uuid in self.former:
            there = list(self.upstream.truth.objects)
            kept = [name for name in there if name.startswith(f"{PINS}/{backfill_pins(uuid)}")]
            for name in (*kept, subscriber_name(uuid)):
                self.upstream.truth.remove(name)

    def _now_and_then(self, every_ms: int, happen: Callable[[], None]) -> None:
        def again() -> None:
            if not self.world.calm:
                happen()
                self._now_and_then(every_ms, happen)

        self.world.scheduler.after(round(self.chance.expovariate(1 / every_ms)), again)

    def _fail_for_a_while(self) -> None:
        weather, duration_ms = self.line.weather, self.chance.choice([5_000, 20_000, 2 * self.world.character.grace_ms])
        weather.record("database", "down", "everybody", f"{duration_ms}")
        weather.down_until_ms[None] = self.world.scheduler.now_ms + duration_ms

    def _restore(self) -> None:
        there = self.database.contents
        if backups := [each for each in self.database.backups if each != there]:
            self.database.restore(self.chance.choice(backups))
            self._happened("restored")

    def _back_up(self) -> None:
        if self.database.contents.rows or self.chance.random() < 0.1:
            self.database.back_up()

    def _empty(self) -> None:
        if not self.database.contents.rows:
            return
        self.database.empty()
        self._happened("emptied")

    def _happened(self, what: str) -> None:
        self.line.weather.record("database", what, "", "")
        self.oracle.counts[f"destinations {what}"] += 1

    def _kill(self) -> None:
        for run in self.world.dagster.runs:
            if run.stream is self.stream and run.process is not None and run.process.alive:
                run.process.kill()

    def _drain(self) -> None:
        """A user asks the run to end cleanly."""
        newest = self.oracle.newest
        if newest is None:
            return
        process, request = self.world.process("drainer"), DrainRequest(newest.term, "", 0, "a host")

        def ask() -> None:
            try:
                write_drain(self.stream.store_of(process), request)
            except StoreUnavailableError:
                return
            self.oracle.counts["drains asked for"] += 1

        process.spawn("drainer", ask)

    def _recreate(self) -> None:
        """A user stops everything, removes the stream's folder, and materializes the stream."""
        if self.world.calm:
            return
        for process in list(self.world.processes):
            process.kill()
        self.upstream.begin_again()
        self.oracle.counts["streams made again"] += 1
        self.world.dagster.launch(self.upstream)

    # ---- where it stops

    def stopped(self, error: IncompatibleStateError) -> None:
        """A run has stopped: after some time a user does what its error advises."""
        self.may_stop(error)
        judge, delay_ms = self.oracle, self.chance.choice([1_000, 10_000, 60_000])
        self.world.scheduler.after(1_000 if self.world.calm else delay_ms, lambda: self._help(judge))

    def may_stop(self, error: IncompatibleStateError) -> None:
        """Judge why a run has stopped."""
        self.oracle.may_stop(self.mode, self.database, error)

    def _help(self, judge: DeliveryOracle) -> None:
        """Once for all runs that stopped on the same folder of the delivery: `judge` is the oracle of that folder."""
        if judge is not self.oracle or self.world.is_over:
            return
        backups, chance = self.database.backups, self.chance
        if backups and not self.world.calm and chance.random() < 0.5:
            self.database.restore(chance.choice(backups))
        else:
            self.begin_again()
        self.world.dagster.launch(self.stream)

    def begin_again(self) -> None:
        """Start over as the error advises: empty the destination, remove the delivery's folder, and unsubscribe.

        No run of it is alive meanwhile.
        """
        self._kill()
        if self.oracle.newest is not None:  # else it was never opened
            self.former.append(self.oracle.uuid)
        self.unsubscribe()
        self.stream.begin_again()
        self.database.begin_again()
        self.oracle.counts["deliveries begun again"] += 1


def delivered(
    world: "World", character: DeliveryCharacter | None, chance: Random, streams: "list[SimulatedStream]"
) -> "list[tuple[Delivering, SimulatedStream]]":
    """The delivery of a world, if it has one, and the stream that it delivers."""
    if character is None:
        return []
    return [(Delivering(world, character, chance), streams[character.number % len(streams)])]
