"""A world in which everything goes wrong in an order that a test decides, and an oracle that sees all of it.

Writers and a collector are the real code, each in a thread of its own, but only one moves at a time: each waits at
every call to the store, and whenever it sleeps, until the schedule picks it. What happens to that call is the
schedule's choice too. A run is decided by its schedule alone, so it can be repeated, and shrunk by Hypothesis.
"""

import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from itertools import count
from typing import Any, TypeVar
from unittest.mock import patch
from uuid import uuid4

from dagster_ckpt.errors import FencedError, InvalidPipelineError, StoreUnavailableError
from dagster_ckpt.ids import EMPTY, Term, Version
from dagster_ckpt.protocol.lineage import lineage
from dagster_ckpt.protocol.manifest import Manifest
from dagster_ckpt.protocol.manifest_codec import decode_manifest
from dagster_ckpt.protocol.manifest_rules import violations
from dagster_ckpt.protocol.names import MANIFESTS, TRIMMED, manifest_name, parse_manifest_name
from dagster_ckpt.storage import chain as chain_module
from dagster_ckpt.storage.chain import ManifestChain
from dagster_ckpt.storage.memory import MemoryObjectStore
from dagster_ckpt.storage.opening import Opening, Takeover, open_again, open_manifest
from dagster_ckpt.storage.patience import Patience
from dagster_ckpt.storage.writer import StreamWriter
from tests.worlds.clock import StillClock
from tests.worlds.faulty_store import Call, Fault, FaultyStore
from tests.worlds.streams import an_edit, an_opening

T = TypeVar("T")

KEPT = 3  # the newest manifests that the collector spares; 16 in life, few here so that numbers are freed often
COLLECTOR = "collector"
IMPATIENT = Patience(total_ms=10, pause_ms=50, pause_ms_max=50)
IMPATIENT_TRIES = 2


_decoded_once = lru_cache(maxsize=4096)(decode_manifest)  # three quarters of the time; manifests are values


class Killed(BaseException):
    """The process ends here and now."""


class Turn(StrEnum):
    """What happens to the next call of whoever is picked."""

    GOES_WELL = "goes well"
    LOST_REQUEST = "lost request"
    LOST_REPLY = "lost reply"
    LATE = "late"
    """Its caller hears nothing; it happens when the next LATE_LANDS comes."""
    CUT_OFF = "cut off"
    """As LATE, and so are the caller's next calls until it gives up."""
    LATE_LANDS = "late lands"
    """It goes well, after all late calls have happened."""
    KILLED_BEFORE = "killed before"
    KILLED_AFTER = "killed after"


Burst = tuple[int, int, Turn]
"""Which actor moves (modulo their number), how often while all others sleep, and what happens at its last move.

Long bursts let somebody sleep for many epochs; short ones mix.
"""

_FAULTS = {
    Turn.LOST_REQUEST: Fault.LOST_REQUEST,
    Turn.LOST_REPLY: Fault.LOST_REPLY,
    Turn.LATE: Fault.LATE,
}


class Oracle(MemoryObjectStore):
    """The store as it truly is. It writes down every manifest ever created and knows at once if history splits."""

    def __init__(self) -> None:
        super().__init__(uuid4().hex)
        self.history: dict[Version, Manifest] = {}
        self.freed: set[Version] = set()
        self.faults: list[str] = []

    def put_if_absent(self, name: str, data: bytes | memoryview) -> bool:
        created = super().put_if_absent(name, data)
        if created and parse_manifest_name(name) is not None:
            self._witness(_decoded_once(bytes(data), name))
        return created

    def delete(self, name: str) -> None:
        version = parse_manifest_name(name)
        # What is created on a freed number is a sleeper's, also where its bytes are those that were there before.
        if version in self.history and version not in self.freed:
            self.freed.add(version)
            if version > max(self.history) - KEPT:
                self.faults.append(f"version {version} was removed although it counts")
            if threading.current_thread().name.startswith("writer"):
                self.faults.append(f"version {version} was removed by a writer")
        super().delete(name)

    def _witness(self, manifest: Manifest) -> None:
        """A manifest on a number that was freed is a sleeper's; any other is history, and must follow what is there."""
        if manifest.version in self.history:
            return
        parent = None if manifest.parent is None else self.history.get(manifest.parent)
        if broken := violations(parent, manifest):
            self.faults.append(f"version {manifest.version} does not follow its parent: {broken}")
        self.history[manifest.version] = manifest

    def heard(self, manifest: Manifest) -> None:
        """A writer was told that this manifest is committed."""
        truth = self.history.get(manifest.version)
        if truth is None or truth.nonce != manifest.nonce:
            self.faults.append(f"version {manifest.version} was reported as committed but is not in history")

    @property
    def newest(self) -> Manifest | None:
        return self.history[max(self.history)] if self.history else None


@dataclass
class Actor:
    """One life after another of one process, in a thread that moves only when it is picked."""

    name: str
    live: Callable[["Actor"], None]
    moves: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    waits: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    turn: Turn = Turn.GOES_WELL
    lives_on: bool = True
    error: BaseException | None = None

    def wait(self) -> Turn:
        """Called by the actor: wait to be picked."""
        self.waits.release()
        self.moves.acquire()
        return self.turn

    def run(self) -> None:
        self.moves.acquire()
        try:
            self.live(self)
        except Killed:
            pass
        except BaseException as error:  # noqa: BLE001  (raised again by whoever moves it)
            self.error = error
        self.lives_on = False
        self.waits.release()


class _Scheduled(FaultyStore):
    """The store as one actor sees it."""

    def __init__(self, truth: Oracle, actor: Actor, late: list[Callable[[], object]]) -> None:
        super().__init__(truth, self._decided, late=late)
        self._actor = actor
        self._turn = Turn.GOES_WELL
        self._cut_off = 0

    def _decided(self, call: Call) -> Fault:
        self._turn = self._actor.wait()
        if self._turn is Turn.KILLED_BEFORE:
            raise Killed
        if self._turn is Turn.CUT_OFF:
            self._cut_off = IMPATIENT_TRIES
        if self._cut_off:
            self._cut_off -= 1
            return Fault.LATE
        return _FAULTS.get(self._turn, Fault.NONE)

    def _call(self, verb: str, name: str, happen: Callable[[], T]) -> T:
        answer = super()._call(verb, name, happen)
        if self._turn is Turn.KILLED_AFTER:
            raise Killed
        return answer


class _Clock(StillClock):
    """Time passes while somebody sleeps, and others move meanwhile."""

    def __init__(self, actor: Actor, shared: StillClock) -> None:
        super().__init__()
        self._actor = actor
        self._shared = shared

    def now_ms(self) -> int:
        return self._shared.now_ms()

    def monotonic_ms(self) -> int:
        return self._shared.monotonic_ms()

    def sleep_ms(self, duration_ms: int) -> None:
        self._shared.sleep_ms(duration_ms)
        if self._actor.wait() in (Turn.KILLED_BEFORE, Turn.KILLED_AFTER):
            raise Killed

    def unique(self) -> str:
        return self._shared.unique()


def a_schedule(seed: int, bursts: int = 60) -> list[Burst]:
    """A schedule of its own character: who moves often, how long the bursts are, what goes wrong and how often."""
    chance = random.Random(seed)
    weights = [chance.choice([1, 1, 4, 8]) for _ in range(4)]
    lengths = chance.choice([[1, 2, 3], [1, 5, 20], [3, 30, 60], [1, 1, 80]])
    faults = chance.sample([turn for turn in Turn if turn is not Turn.GOES_WELL], chance.randrange(4))
    rate = chance.choice([0.1, 0.3, 0.6])
    return [
        (
            chance.choices(range(4), weights)[0],
            chance.choice(lengths),
            chance.choice(faults) if faults and chance.random() < rate else Turn.GOES_WELL,
        )
        for _ in range(bursts)
    ]


class Simulation:
    """`chains` makes the chain of an actor, so that a test can put a mutant in its place."""

    def __init__(
        self,
        schedule: Sequence[Burst],
        writers: int = 3,
        epochs: int = 8,
        chains: Callable[[FaultyStore, StillClock], ManifestChain] = lambda store, clock: ManifestChain(
            store, clock, IMPATIENT
        ),
    ) -> None:
        self.truth = Oracle()
        self.clock = StillClock()
        self.late: list[Callable[[], object]] = []
        self.commits = 0
        self._schedule, self._epochs, self._chains = schedule, epochs, chains
        self._over = False
        self._actors = [Actor(f"writer-{number}", self._write) for number in range(writers)]
        self._actors.append(Actor(COLLECTOR, self._collect))

    def run(self) -> Oracle:
        """Let everything happen that the schedule says; then everybody is killed, and somebody new looks."""
        for actor in self._actors:
            threading.Thread(target=actor.run, name=actor.name, daemon=True).start()
        with patch.object(chain_module, "decode_manifest", _decoded_once):
            self._follow_the_schedule()
        self._land()
        self._check_the_end()
        return self.truth

    def _follow_the_schedule(self) -> None:
        for at, moves, turn in self._schedule:
            actor = self._actors[at % len(self._actors)]
            for _ in range(moves - 1):
                self._move(actor, Turn.GOES_WELL)
            if turn is Turn.LATE_LANDS:
                self._land()
            self._move(actor, turn)
        self._over = True
        for actor in self._actors:
            while actor.lives_on:
                self._move(actor, Turn.KILLED_BEFORE)

    def _move(self, actor: Actor, turn: Turn) -> None:
        actor.turn = turn
        actor.moves.release()
        actor.waits.acquire()
        if actor.error is not None:
            raise AssertionError(f"{actor.name} met an error it should not") from actor.error

    def _land(self) -> None:
        waiting, self.late[:] = list(self.late), []
        for happen in waiting:
            happen()

    def _chain(self, actor: Actor) -> ManifestChain:
        return self._chains(_Scheduled(self.truth, actor, self.late), _Clock(actor, self.clock))

    def _write(self, actor: Actor) -> None:
        chain = self._chain(actor)
        for life in count():
            if self._over:
                return
            opening = an_opening(f"{actor.name}-{life}", retained=1, lease_timeout_ms=60, **self._right(life))
            try:
                self._live(actor, chain, opening, life)
            except (FencedError, StoreUnavailableError, InvalidPipelineError, Killed):
                continue  # its Dagster run has ended; the next one begins

    def _right(self, life: int) -> dict[str, Any]:
        """Each way into a stream: told to take over, with the right to fence one term, polite, going back."""
        newest = self.truth.newest
        match life % 4:
            case 0:
                return {"take_over": Takeover.ALWAYS}
            case 1:
                return {"may_fence": Term(1) if newest is None else newest.term}
            case 2:
                return {}
            case _:
                retained = lineage(newest) if newest else ()
                return {"take_over": Takeover.ALWAYS, "from_epoch": retained[0].epoch if retained else EMPTY}

    def _live(self, actor: Actor, chain: ManifestChain, opening: Opening, life: int) -> None:
        writer = StreamWriter(chain, opening, open_manifest(chain, opening))
        self.truth.heard(writer.manifest)
        for attempt in range(self._epochs):
            try:
                edit = an_edit(writer.manifest, attempt)
                self.truth.heard(writer.commit(edit))
                self.commits += 1
            except StoreUnavailableError:
                writer = self._reopened(chain, opening, writer)

    def _reopened(self, chain: ManifestChain, opening: Opening, before: StreamWriter) -> StreamWriter:
        writer = StreamWriter(chain, opening, open_again(chain, opening, before.manifest))
        self.truth.heard(writer.manifest)
        return writer

    def _collect(self, actor: Actor) -> None:
        chain = self._chain(actor)
        while not self._over:
            try:
                self._collect_once(chain)
            except (StoreUnavailableError, Killed):
                continue

    def _collect_once(self, chain: ManifestChain) -> None:
        newest = chain.newest()
        if newest is None:
            return
        listed = [version for name in chain.store.list(MANIFESTS) if (version := parse_manifest_name(name)) is not None]
        last = min([newest.version - KEPT, *(entry.version - 1 for entry in newest.retained)])
        if any(version <= last for version in listed):
            chain.store.put_if_absent(TRIMMED, b"{}")
            assert chain.store.exists(TRIMMED)
        for version in sorted(listed):
            if version <= last:
                chain.store.delete(manifest_name(version))
                if chain.store.exists(manifest_name(version)):
                    return

    def _check_the_end(self) -> None:
        """Whoever looks now finds the end of the one history."""
        found = ManifestChain(self.truth, self.clock, IMPATIENT).newest()
        if found != self.truth.newest:
            self.truth.faults.append(f"the newest is not found: {found and found.version}, {self.truth.newest}")
