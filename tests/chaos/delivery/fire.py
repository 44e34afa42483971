"""Rounds of kills: each destination's delivery, its server and the streams are struck side by side, then compared.

Every lane (a destination, or a stream) has kills of its own, at moments of chance, and does not wait for the others.
"""

import random
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import StrEnum

from dagster_ckpt.protocol.epochs.upstream import decode
from tests.chaos.cluster import NO_ANSWER, Cluster, Standing
from tests.chaos.delivery.targets import STREAMS, TARGETS, table
from tests.chaos.feeder import Feeder
from tests.chaos.lanes import Wrong, inbox_in, rows_of
from tests.chaos.rounds import RECOVERY_S_MAX, BrokenPromiseError
from tests.chaos.strikes import RESTART_S
from tests.chaos.world import until
from tests.servers.processes import Killable

LOOK_S = 0.1
PAUSE_S = (0.2, 5.0)
"""The least and the most between the end of one kill's recovery and the lane's next kill."""

STREAM_KILLS = 2
SERVER_KILLS = 3
"""Of ten kills that a destination meets."""


class Kind(StrEnum):
    """Who is killed."""

    DELIVERY = "delivery"  # the worker of the delivery's Dagster run
    STREAM = "stream"  # the worker of the stream's Dagster run: each destination of the stream waits for it
    SERVER = "server"  # every process of the destination's server, which is then started again
    BOTH = "delivery+server"


@dataclass
class Kill:
    """One kill as one destination met it. `seconds`: until its next transaction with rows; None before that.

    `at_s` is of the monotonic clock; `before` is how far the delivery had come when the target was dead.
    """

    target: str
    kind: Kind
    before: Standing
    at_s: float
    seconds: float | None = None


@dataclass
class Lane:
    """A destination or a stream, with the kills that are left for it in this round."""

    name: str
    kinds: list[Kind]
    due_s: float = 0.0
    kills: list[Kill] = field(default_factory=list)

    @property
    def is_busy(self) -> bool:
        return any(kill.seconds is None for kill in self.kills)


@dataclass
class Outcome:
    """What came of a round: its kills, and what is wrong with each destination's table."""

    kills: list[Kill] = field(default_factory=list)
    wrong: dict[str, Wrong] = field(default_factory=dict)


@dataclass
class Rounds:
    """Rounds on one cluster. `targets` are the destinations, `servers` those that some of them need.

    `tell` hears what happens, for people.
    """

    cluster: Cluster
    feeder: Feeder
    chance: random.Random
    targets: Sequence[str]
    servers: Mapping[str, Killable]
    environment: Mapping[str, str]
    tell: Callable[[str], None] = lambda text: None
    _restarts: dict[str, "Future[None]"] = field(default_factory=dict)
    _pool: ThreadPoolExecutor = field(default_factory=ThreadPoolExecutor)

    @property
    def streams(self) -> list[str]:
        return [*dict.fromkeys(TARGETS[name].stream for name in self.targets)]

    def begin(self) -> None:
        """Until every destination has rows."""
        self.cluster.wait_until_ready()
        until("every destination has rows", lambda: all(map(self._rows, self.targets)), RECOVERY_S_MAX)

    def play(self, kills: int, outcome: Outcome) -> None:
        """Kill until every destination has met so many; then compare. `outcome` is filled on the way.

        Raises `BrokenPromiseError` where a delivery does not come back, or there is nothing to kill for long.
        """
        lanes = [*self._lanes(kills)]
        for lane in lanes:
            lane.due_s = time.monotonic() + self.chance.uniform(*PAUSE_S)
        moved_s = time.monotonic()
        while any(lane.kinds for lane in lanes) or any(kill.seconds is None for kill in outcome.kills):
            if self._step(lanes, outcome):
                moved_s = time.monotonic()
            if time.monotonic() - moved_s > RECOVERY_S_MAX:
                waits = [f"{kill.kind} of {kill.target}" for kill in outcome.kills if kill.seconds is None]
                left = {lane.name: [*map(str, lane.kinds)] for lane in lanes if lane.kinds}
                raise BrokenPromiseError(f"nothing has come back for {RECOVERY_S_MAX:.0f} s. {waits=}, {left=}")
            time.sleep(LOOK_S)
        self._until_restarted()
        outcome.wrong = self._compared()

    def _lanes(self, kills: int) -> list[Lane]:
        """Each destination's own kills, and the streams', which count for each destination of them."""
        of_streams = min(STREAM_KILLS, kills // 2)
        lanes = [Lane(stream, [Kind.STREAM] * of_streams) for stream in self.streams]
        for name in self.targets:
            own = kills - of_streams
            of_server = min(SERVER_KILLS, own // 2) if TARGETS[name].server else 0
            kinds = [Kind.DELIVERY] * (own - of_server) + [Kind.SERVER] * of_server
            if of_server > 1:
                kinds[-1] = Kind.BOTH
            self.chance.shuffle(kinds)
            lanes.append(Lane(name, kinds))
        return lanes

    def _step(self, lanes: Sequence[Lane], outcome: Outcome) -> bool:
        """See who is back, and kill where it is time. Whether anything has happened."""
        happened = self._look(outcome)
        for lane in lanes:
            if lane.is_busy:
                lane.due_s = time.monotonic() + self.chance.uniform(*PAUSE_S)
            elif lane.kinds and time.monotonic() >= lane.due_s and self._is_up(lane.name):
                made = self._kill(lane)
                lane.kills += made
                outcome.kills += made
                happened = happened or bool(made)
        return happened

    def _look(self, outcome: Outcome) -> bool:
        happened = False
        for kill in outcome.kills:
            # A position that the last run had committed and this one has only recorded brings no rows.
            if kill.seconds is None and self._rows(kill.target) > kill.before.rows:
                kill.seconds = time.monotonic() - kill.at_s
                self.tell(f"{kill.target}: delivers {kill.seconds:.1f} s after the kill of its {kill.kind}")
                happened = True
        return happened

    def _kill(self, lane: Lane) -> list[Kill]:
        """The lane's next kill; none where its target is not there at the moment."""
        kind = lane.kinds[0]
        try:
            work = None if kind is Kind.SERVER else self.cluster.at_work(lane.name)
            if work is None and kind is not Kind.SERVER:
                return []
            at_s = time.monotonic()
            if work is not None:
                self.cluster.kill(work.worker)
        except (*NO_ANSWER, ProcessLookupError):
            return []
        if kind in {Kind.SERVER, Kind.BOTH}:
            name = TARGETS[lane.name].server
            self.servers[name].kill()
            self._restarts[name] = self._pool.submit(self._restart, self.servers[name])
        del lane.kinds[0]
        self.tell(f"kill of {lane.name}" if kind is Kind.STREAM else f"kill of the {kind} of {lane.name}")
        hurt = [each for each in self.targets if TARGETS[each].stream == lane.name] or [lane.name]
        return [Kill(each, kind, self.cluster.standing(each), at_s) for each in hurt]

    @staticmethod
    def _restart(server: Killable) -> None:
        time.sleep(RESTART_S)
        server.start()

    def _is_up(self, lane: str) -> bool:
        """Whether the lane's server, if it has one, is not about to be started."""
        restart = self._restarts.get(TARGETS[lane].server) if lane in TARGETS else None
        if restart is None:
            return True
        return restart.done() and restart.result() is None

    def _until_restarted(self) -> None:
        for restart in self._restarts.values():
            restart.result()

    def _compared(self) -> dict[str, Wrong]:
        """What is wrong with every destination's table, once all rows are there; rows come again afterwards."""
        self.feeder.pause()
        try:
            until("every stream has all rows", lambda: all(map(self._has_all, self.streams)), RECOVERY_S_MAX)
            until("every delivery is through", lambda: all(map(self._is_through, self.targets)), RECOVERY_S_MAX)
            rows = rows_of(inbox_in(self.cluster.place))
            return {
                name: STREAMS[TARGETS[name].stream](table(name, self.cluster.place, self.environment), rows)
                for name in self.targets
            }
        finally:
            self.feeder.resume()

    def _rows(self, lane: str) -> int:
        return self.cluster.standing(lane).rows

    def _has_all(self, stream: str) -> bool:
        return self._rows(stream) >= self.feeder.rows

    def _is_through(self, name: str) -> bool:
        current = self.cluster.history(name).manifest().sources[0].current
        newest = self.cluster.history(TARGETS[name].stream).manifest().epoch
        return current is not None and decode(current).epoch == newest
