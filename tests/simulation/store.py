"""The store as one simulated process sees it: far away, and everything that can go wrong on the way does."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Any, Generic, TypeVar

from dagster_ckpt.errors import StoreUnavailableError
from dagster_ckpt.ids import Version
from dagster_ckpt.protocol.object_names import is_object_name, manifest_name, parse_manifest_name
from dagster_ckpt.storage.stores.object_store import ObjectMissingError
from tests.simulation.character import Character
from tests.simulation.scheduler import Killed, Process, Scheduler, Strand
from tests.simulation.truth import Truth

T = TypeVar("T")

REFUSES = -1
NO_ANSWER_MS = 1_000
"""After which a caller who hears nothing is told so."""


class Fate(StrEnum):
    """What becomes of a request."""

    GOES_WELL = "ok"
    LOST_REQUEST = "lost request"
    LOST_REPLY = "lost reply"
    LATE = "late"
    """Its caller is told that there was no answer; it happens later."""


_GOES_WELL = Fate.GOES_WELL
_DOZES = ("put_if_absent", "get")
_RARE_TIMES = 5  # who pins or reads the past does so rarely, and dozes so much more often
_SOME_FILE = "some file"

Step = tuple[int, str, str, str, str]
"""When, who, what, of which object, and what came of it."""


def _creates_truth(verb: str, name: str) -> bool:
    return verb == "put_if_absent" and _in_its_folder(name).startswith(("manifest/0", "pins/", "subscribers/"))


def _in_its_folder(name: str) -> str:
    """What an object of the store is called in the folder of its stream."""
    return name.partition("/")[2]


@lru_cache(maxsize=4096)
def _follower(name: str) -> tuple[str, str | None]:
    """The folder of an object, and the name there of the manifest that follows it; None for any other object."""
    folder, _, inside = name.partition("/")
    version = parse_manifest_name(inside)
    return folder, None if version is None else manifest_name(Version(version + 1))


@dataclass
class Weather:
    """What all processes' stores share: chance, what is bad just now, and the trace of all that happened.

    `truths` are the streams' folders, by name; all else names objects from the store's root, as `SimulatedStore` does.

    `down` says until when nobody's, or one process's (by number), requests get through.

    `room` is how many bytes can still be written; None: enough for ever. A full disk has 0, and takes empty objects; a
    store that refuses all that is written has `REFUSES`. What is deleted makes room on a disk.
    """

    scheduler: Scheduler
    character: Character
    chance: Random
    truths: dict[str, Truth]
    trace: list[Step] = field(default_factory=list)
    requests: int = 0
    calm: bool = False
    down_until_ms: dict[int | None, int] = field(default_factory=dict)
    late: list["Request[Any]"] = field(default_factory=list)
    asleep: dict[str, list[Process]] = field(default_factory=dict)
    room: int | None = None
    deleted_while_full: int = 0
    echoes: dict[str, "Request[Any]"] = field(default_factory=dict)

    def __post_init__(self) -> None:
        faults = self.character.faults
        fates = (
            (faults.lost_request, Fate.LOST_REQUEST),
            (faults.lost_reply, Fate.LOST_REPLY),
            (faults.late, Fate.LATE),
        )
        self._pause = faults.pause
        self._fates = [(rate, fate) for rate, fate in fates if rate]

    def take(self, name: str, size: int) -> None:
        """Raises `StoreUnavailableError` where there is no room for an object of that size."""
        if self.room is None or self.calm:
            return
        if size > self.room:
            raise StoreUnavailableError(f"the simulated store is full: try again. {name=}")
        self.room -= size

    def give_back(self, size: int) -> None:
        self.deleted_while_full += self.room is not None
        if self.room is not None and self.room != REFUSES:
            self.room += size

    def truth_of(self, name: str) -> tuple[Truth, str]:
        """The folder that an object, or another folder, is in, and its name there."""
        folder, _, inside = name.partition("/")
        return self.truths[folder], inside

    def fate(self, process: Process, verb: str, name: str) -> Fate:
        faults, chance = self.character.faults, self.chance
        if self.calm:
            return _GOES_WELL
        if verb == "put_if_absent" and _creates_truth(verb, name) and chance.random() < faults.cut_off:
            until_ms = self.scheduler.now_ms + self.character.patience.total_ms + 2 * NO_ANSWER_MS
            self.down_until_ms[process.number] = max(until_ms, self.down_until_ms.get(process.number, 0))
            return Fate.LATE
        if self.down_until_ms and self._is_down(process):
            return Fate.LATE if chance.random() < faults.late else Fate.LOST_REQUEST
        drawn = chance.random()
        for rate, fate in self._fates:
            if drawn < rate:
                return fate
            drawn -= rate
        return _GOES_WELL

    def _is_down(self, process: Process) -> bool:
        until_ms, now_ms = self.down_until_ms, self.scheduler.now_ms
        return until_ms.get(None, 0) > now_ms or until_ms.get(process.number, 0) > now_ms

    def latency_ms(self) -> int:
        return 1 if self.calm else 1 + int(self.chance.random() * self.character.latency_ms_max)

    def pause_ms(self) -> int:
        """How long somebody sleeps here: mostly not at all."""
        chance = self.chance
        if self.calm or chance.random() >= self._pause:
            return 0
        return int(chance.choice(self.character.faults.pauses_ms) * (0.5 + chance.random()))

    def doze_ms(self, verb: str, name: str) -> int:
        """How long somebody sleeps right before or after a create of truth, or the read of an older manifest."""
        faults = self.character.faults
        if self.calm or not (_creates_truth(verb, name) or self._reads_the_past(verb, name)):
            return 0
        rare = 1 if _in_its_folder(name).startswith("manifest") and verb != "get" else _RARE_TIMES
        if self.chance.random() >= faults.doze * rare:
            return 0
        return int(self.chance.choice(faults.dozes_ms) * (0.5 + self.chance.random()))

    def _reads_the_past(self, verb: str, name: str) -> bool:
        if verb != "get":
            return False
        folder, follower = _follower(name)
        return follower is not None and follower in self.truths[folder].objects

    def listed(self, prefix: str) -> list[str]:
        """The names below a folder, perhaps as they were some time ago."""
        faults, chance = self.character.faults, self.chance
        folder, _, inside = prefix.partition("/")
        truth = self.truths[folder]
        if self.calm or chance.random() >= faults.late_list:
            names = truth.names(inside)
        else:
            since_ms = self.scheduler.now_ms - chance.randrange(faults.list_late_ms + 1)
            names = truth.names_late(inside, since_ms, lambda: chance.random() < 0.5)
        return [f"{folder}/{name}" for name in names]

    def land_late(self, request: "Request[Any]") -> None:
        """Let it happen at some later time; in the end all of it has."""
        self.late.append(request)
        if self.chance.random() < 0.8:
            delay_ms = int(self.chance.choice(self.character.faults.pauses_ms) * self.chance.random())
            self.scheduler.after(delay_ms, lambda: self.land(request))

    def echo(self, request: "Request[Any]") -> None:
        """Let a create that was done be on its way a second time."""
        if not self.calm and self.character.echo and self.chance.random() < self.character.echo:
            self.echoes[request.name] = request

    def land_in_between(self, name: str) -> None:
        """The worst moment for a late request: right before another arrives for the same object."""
        for request in [late for late in self.late if late.name == name]:
            if self.chance.random() < 0.5:
                self.land(request)

    def land_all(self) -> None:
        while self.late:
            self.land(self.late[0])

    def doze_until_freed(self, process: Process, name: str, duration_ms: int) -> None:
        """The worst moment to wake up: right after retention has freed the number that one was about to take.

        Who is about to pin wakes up after some file was deleted. After `duration_ms` they wake up in any case.
        """
        process.freeze(duration_ms)
        self.asleep.setdefault(name if _in_its_folder(name).startswith("manifest") else _SOME_FILE, []).append(process)

    def freed(self, name: str) -> None:
        if _in_its_folder(name).startswith(("state", "changes")) and self.chance.random() < 0.1:
            name = _SOME_FILE
        woken = self.asleep.pop(name, ())
        for process in woken:
            self.scheduler.after(self.latency_ms(), process.thaw)
        version = parse_manifest_name(_in_its_folder(name)) if woken and not self.calm else None
        parent = None if version is None else f"{name.partition('/')[0]}/{manifest_name(Version(version - 1))}"
        if parent is not None and (echo := self.echoes.pop(parent, None)) is not None:
            # The worst moment of all: the manifest comes back that the sleeper has built upon.
            echo.arrive()

    def land(self, request: "Request[Any]") -> None:
        """Let it arrive now, unless it has."""
        if request in self.late:
            self.late.remove(request)
            request.arrive()

    def record(self, who: str, verb: str, name: str, outcome: str) -> None:
        self.trace.append((self.scheduler.now_ms, who, verb, name, outcome))


class SimulatedStore:
    """The whole store, an `ObjectStore`. Whoever calls it waits; everybody else moves meanwhile."""

    def __init__(self, process: Process, weather: Weather) -> None:
        self._process = process
        self._weather = weather

    @property
    def url(self) -> str:
        return "memory://simulation"

    def put_if_absent(self, name: str, data: bytes | memoryview) -> bool:
        kept, (truth, inside) = bytes(data), self._weather.truth_of(name)

        def create(who: Strand) -> bool:
            self._weather.take(name, len(kept))
            return truth.put_if_absent(inside, kept, who)

        try:
            created = self._change("put_if_absent", name, create)
        except StoreUnavailableError:
            truth.unanswered(inside)
            raise
        if created and parse_manifest_name(inside) is not None:
            self._weather.echo(Request(self._weather, self._weather.scheduler.this(), "put_if_absent", name, create))
        return created

    def put(self, name: str, data: bytes | memoryview) -> None:
        kept, (truth, inside) = bytes(data), self._weather.truth_of(name)

        def put(who: Strand) -> None:
            self._weather.take(name, len(kept))
            truth.put(inside, kept, who)

        self._change("put", name, put)

    def delete(self, name: str) -> None:
        truth, inside = self._weather.truth_of(name)

        def delete(who: Strand) -> None:
            if inside in truth.objects:
                self._weather.give_back(len(truth.objects[inside]))
            truth.delete(inside, who)

        self._change("delete", name, delete)

    def get(self, name: str) -> bytes:
        truth, inside = self._weather.truth_of(name)
        return self.request("get", name, lambda _: truth.get(inside))

    def get_range(self, name: str, offset: int, length: int) -> bytes:
        return self.get(name)[offset : offset + length]

    def exists(self, name: str) -> bool:
        truth, inside = self._weather.truth_of(name)
        return self.request("exists", name, lambda _: inside in truth.objects)

    def size(self, name: str) -> int:
        return len(self.get(name))

    def modified_ms(self, name: str) -> int:
        truth, inside = self._weather.truth_of(name)
        return self.request("modified_ms", name, lambda _: truth.modified_ms(inside))

    def list(self, prefix: str, after: str = "") -> Iterator[str]:
        listed = self.request("list", prefix, lambda _: self._weather.listed(prefix))
        yield from (name for name in listed if name > after)

    def folders(self, prefix: str) -> Iterator[str]:
        raise NotImplementedError("nobody looks the store through for streams")

    def discard_leftovers(self, prefix: str, before_ms: int) -> int:
        return self.request("discard_leftovers", prefix, lambda _: 0)

    def settle(self, folder: str) -> None:
        """Nothing to do, and too dull to wait for."""

    def local_path(self, name: str) -> Path | None:
        return None

    def _change(self, verb: str, name: str, happen: Callable[[Strand], T]) -> T:
        assert is_object_name(name), name
        return self.request(verb, name, happen, changes=True)

    def request(self, verb: str, name: str, happen: Callable[[Strand], T], *, changes: bool = False) -> T:
        """Have it happen over there, and wait for the answer. A late request happens only if it `changes` anything."""
        process, weather = self._process, self._weather
        if not process.alive:
            raise Killed
        who = weather.scheduler.this()
        weather.requests += 1
        dozes = verb in _DOZES
        if dozes:
            self._doze(who, verb, name)
        fate = weather.fate(process, verb, name)
        request = Request(weather, who, verb, name, happen)
        if fate is _GOES_WELL or fate is Fate.LOST_REPLY:
            request.arrive_after(weather.latency_ms() + weather.pause_ms())
        elif fate is Fate.LATE and changes:
            weather.land_late(request)
        if fate is not _GOES_WELL:
            who.sleep(NO_ANSWER_MS)
            weather.record(who.name, verb, name, fate)
            raise StoreUnavailableError(f"the simulated store did not answer: try again. {verb=}, {name=}")
        if pause_ms := weather.pause_ms():
            who.sleep(pause_ms)
        if dozes:
            self._doze(who, verb, name)
        return request.answer()

    def _doze(self, who: Strand, verb: str, name: str) -> None:
        """Sleep, alone or with the whole process: then its lease lapses too."""
        doze_ms = self._weather.doze_ms(verb, name)
        if not doze_ms:
            return
        self._weather.record(who.name, "dozes", "", f"{doze_ms}")
        drawn = self._weather.chance.random()
        if drawn < 0.6:
            self._weather.doze_until_freed(self._process, name, 10 * doze_ms)
        elif drawn < 0.75:
            self._process.freeze(doze_ms)
        who.sleep(doze_ms if drawn >= 0.75 else 0)


class Request(Generic[T]):
    """A request under way. It may arrive when its sender is dead already."""

    __slots__ = ("_answer", "_happen", "_refusal", "_verb", "_weather", "_who", "name")

    def __init__(self, weather: Weather, who: Strand, verb: str, name: str, happen: Callable[[Strand], T]) -> None:
        self._weather = weather
        self._who = who
        self._verb = verb
        self.name = name
        self._happen = happen
        self._answer: T
        self._refusal: ObjectMissingError | StoreUnavailableError | None = None

    def arrive_after(self, delay_ms: int) -> None:
        """Its sender waits until it has arrived."""
        who, weather = self._who, self._weather
        if not who.leap(delay_ms):
            weather.scheduler.after(delay_ms, self._arrive_and_wake)
            who.wait()
            return
        try:
            if weather.late:
                weather.land_in_between(self.name)
            self.arrive()
        except Exception as error:  # noqa: BLE001  (the oracle's: no sender may catch it)
            weather.scheduler.hub.throw(error)
        if weather.scheduler.is_due():
            who.wake_after(0)
            who.wait()

    def arrive(self) -> None:
        try:
            self._answer = self._happen(self._who)
            outcome = str(self._answer) if isinstance(self._answer, int) else "ok"
        except ObjectMissingError as error:
            self._refusal, outcome = error, "missing"
        except StoreUnavailableError as error:
            self._refusal, outcome = error, "refused"
        weather = self._weather
        if self._verb == "delete" and weather.asleep:
            weather.freed(self.name)
        weather.trace.append((weather.scheduler.now_ms, self._who.name, self._verb, self.name, outcome))

    def answer(self) -> T:
        if self._refusal is not None:
            raise self._refusal
        return self._answer

    def _arrive_and_wake(self) -> None:
        # Half of what a dead process asked for was still on its way.
        if self._who.process.alive or self._weather.chance.random() < 0.5:
            if self._weather.late:
                self._weather.land_in_between(self.name)
            self.arrive()
            self._who.wake_next()
