"""People who restore streams from a backup: the whole store, or one stream's folder. What follows them is ahead then.

A backup is of one moment. Everything is stopped before a restore, and started after it, as `docs/operations` asks.
Destinations and Dagster are not restored: a delivery's position, run tags and the sensor's cursor are of the history
that is gone.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

from dagster_ckpt.ids import FIRST
from tests.simulation.character import Character, gentle

if TYPE_CHECKING:
    from tests.simulation.stream import SimulatedStream
    from tests.simulation.world import World

RESTORES = 0.4
"""In how many worlds with something that follows a stream, and without what reads its files, people restore."""
FIRST_WITH_RESTORES = 2_600
"""Seeds below were written down before there were such worlds."""
APPENDS = 0.6
"""In how many of these worlds the stream only grows, if it would not: what is read twice shows there at once."""
GENTLE = 0.7
"""In how many of them the store nearly always answers."""
LOOK_MS = 2_000
RARELY = 0.001
"""How likely people restore, at a look, while nothing has followed a stream beyond a backup."""
LATER_MS = (0, 30_000, 120_000)
"""How long after a stream those that follow it are started."""


def restores(seed: int) -> bool:
    """Whether people restore in this world, if something follows a stream there."""
    return seed >= FIRST_WITH_RESTORES and Random(f"restored stores of {seed}").random() < RESTORES


def with_restores(character: Character, seed: int) -> Character:
    """Of a world with restores: mostly gentle, so that streams get far, and in a share with one that only grows."""
    if not restores(seed):
        return character
    chance = Random(f"what is restored in {seed}")
    if chance.random() < APPENDS:
        character = replace(character, append=True, shape=None)
    if chance.random() >= GENTLE:
        return character
    return gentle(character, max(character.epoch_pause_ms, 1_000), 2 * character.requests_max)


@dataclass(frozen=True)
class Backup:
    """A copy of a stream's folder, and what its judge knew then."""

    objects: Mapping[str, bytes]
    known: Mapping[str, Any]

    @classmethod
    def of(cls, stream: "SimulatedStream") -> "Backup":
        return cls(dict(stream.truth.objects), stream.oracle.knowledge())

    def fits(self, stream: "SimulatedStream") -> bool:
        """Whether it is of the stream that is there: a removed one may have been made again."""
        then, now = self.known["history"].get(FIRST), stream.oracle.history.get(FIRST)
        return then is not None and then == now


class Restoring:
    """Backs up all streams now and then, and sometimes restores all of them, or one, from one of these backups.

    Mostly when something has followed a stream beyond what the backup has.
    """

    def __init__(self, world: "World") -> None:
        self._world = world
        self._chance = chance = Random(f"restores of {world.seed}")
        self._backups: list[dict[str, Backup]] = []
        self._stopped: list[SimulatedStream] = []
        self._left = chance.choice([1, 3, 6])
        self._back_up, self._restore = chance.choice([0.1, 0.3]), chance.choice([0.2, 0.5])
        self._later()

    def _later(self) -> None:
        self._world.scheduler.after(round(LOOK_MS * (0.5 + self._chance.random())), self._look)

    def _look(self) -> None:
        world, chance = self._world, self._chance
        if world.calm or not self._left:
            return
        self._later()
        if chance.random() < self._back_up:
            self._backups.append({stream.name: Backup.of(stream) for stream in self._streams})
        behind = [each for each in self._backups if any(self._is_ahead(stream, each) for stream in self._streams)]
        # The newest of them: the stream soon reaches again what follows it.
        backup = behind[-1] if behind else chance.choice(self._backups or [{}])
        first, every = self._streams[:1], self._streams
        chosen = chance.choice([every, first, first, first, [chance.choice(every)]])
        fits = all(stream.name in backup and backup[stream.name].fits(stream) for stream in chosen)
        if fits and chance.random() < (self._restore if behind else RARELY):
            self._restore_from(backup, chosen)

    def _is_ahead(self, stream: "SimulatedStream", backup: Mapping[str, Backup]) -> bool:
        """Whether it follows another beyond what the backup has of that one."""
        upstream, newest = stream.upstream, stream.oracle.newest
        if upstream is None or newest is None or upstream.name not in backup:
            return False
        return any(each.epoch > len(backup[upstream.name].known["history"]) for each in newest.consumed)

    def _restore_from(self, backup: Mapping[str, Backup], chosen: "list[SimulatedStream]") -> None:
        world, self._left = self._world, self._left - 1
        for process in list(world.processes):
            process.kill()
        for stream in chosen:  # what is read comes before its readers
            stream.restore(backup[stream.name])
            stream.oracle.counts["streams restored"] += 1
        world.streams[0].oracle.counts["whole stores restored"] += len(chosen) == len(self._streams)
        self._start(world.streams[0])
        for stream in self._streams[1:]:  # often when what they follow has reached their epoch again
            stream.begun = False
            self._stopped.append(stream)
            later_ms = self._chance.choice(LATER_MS)
            world.scheduler.after(later_ms, partial(self._start_again, stream))

    def _start_again(self, stream: "SimulatedStream") -> None:
        if stream in self._stopped:
            self._stopped.remove(stream)
            stream.begun = True
            self._start(stream)

    def _start(self, stream: "SimulatedStream") -> None:
        if not self._world.calm:
            self._world.dagster.launch(stream)

    def end(self) -> None:
        """What is stopped still counts from now on."""
        for stream in self._stopped:
            stream.begun = True
        self._stopped.clear()

    @property
    def _streams(self) -> "list[SimulatedStream]":
        return [stream for stream in self._world.all_streams if stream.begun]
