"""An object store of which each call can go wrong, as a test decides."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

from dagster_ckpt.errors import StoreUnavailableError
from dagster_ckpt.storage.stores.object_store import ObjectStore

T = TypeVar("T")


class Fault(StrEnum):
    """What happens to one call."""

    NONE = "none"
    LOST_REQUEST = "lost request"
    """Nothing happens, and the caller is told that the store did not answer."""
    LOST_REPLY = "lost reply"
    """It happens, and the caller is told that the store did not answer."""
    LATE = "late"
    """The caller is told that the store did not answer; it happens at some later time (`FaultyStore.land`)."""


@dataclass(frozen=True)
class Call:
    """One call: who asks for what."""

    verb: str
    name: str


Decision = Callable[[Call], Fault]


def no_faults(call: Call) -> Fault:
    return Fault.NONE


@dataclass
class FaultyStore:
    """Wraps an honest store. `decide` is asked before each call and may also raise: then nothing happens (a crash).

    `late` are the puts and deletes that have not landed yet. `hidden` are names a late list does not show, and
    `lingering` those it still shows.
    """

    inner: ObjectStore
    decide: Decision = no_faults
    calls: list[Call] = field(default_factory=list)
    late: list[Callable[[], object]] = field(default_factory=list)
    hidden: set[str] = field(default_factory=set)
    lingering: set[str] = field(default_factory=set)

    @property
    def url(self) -> str:
        return self.inner.url

    def put_if_absent(self, name: str, data: bytes | memoryview) -> bool:
        return self._call("put_if_absent", name, lambda: self.inner.put_if_absent(name, data))

    def put(self, name: str, data: bytes | memoryview) -> None:
        self._call("put", name, lambda: self.inner.put(name, data))

    def get(self, name: str) -> bytes:
        return self._call("get", name, lambda: self.inner.get(name))

    def get_range(self, name: str, offset: int, length: int) -> bytes:
        return self._call("get_range", name, lambda: self.inner.get_range(name, offset, length))

    def exists(self, name: str) -> bool:
        return self._call("exists", name, lambda: self.inner.exists(name))

    def size(self, name: str) -> int:
        return self._call("size", name, lambda: self.inner.size(name))

    def modified_ms(self, name: str) -> int:
        return self._call("modified_ms", name, lambda: self.inner.modified_ms(name))

    def delete(self, name: str) -> None:
        self._call("delete", name, lambda: self.inner.delete(name))

    def list(self, prefix: str, after: str = "") -> Iterator[str]:
        names = self._call("list", prefix, lambda: list(self.inner.list(prefix, after)))
        lingering = {name for name in self.lingering if name.startswith(prefix) and name > after}
        yield from sorted({*names, *lingering} - self.hidden)

    def folders(self, prefix: str) -> Iterator[str]:
        yield from self._call("folders", prefix, lambda: list(self.inner.folders(prefix)))

    def discard_leftovers(self, prefix: str, before_ms: int) -> int:
        return self._call("discard_leftovers", prefix, lambda: self.inner.discard_leftovers(prefix, before_ms))

    def settle(self, folder: str) -> None:
        self._call("settle", folder, lambda: self.inner.settle(folder))

    def local_path(self, name: str) -> Path | None:
        return self.inner.local_path(name)

    def land(self) -> None:
        """Let all late calls happen now."""
        waiting, self.late = self.late, []
        for happen in waiting:
            happen()

    def _call(self, verb: str, name: str, happen: Callable[[], T]) -> T:
        call = Call(verb, name)
        self.calls.append(call)
        match self.decide(call):
            case Fault.NONE:
                return happen()
            case Fault.LOST_REPLY:
                happen()
            case Fault.LATE if verb in {"put_if_absent", "put", "delete"}:
                self.late.append(happen)
        raise StoreUnavailableError(f"the test's store did not answer: try again. {verb=}, {name=}")


class Scripted:
    """Faults by call: the first ones of a list, matched by verb and a part of the name; each is used once."""

    def __init__(self, *script: tuple[str, str, Fault]) -> None:
        self._script = list(script)

    def __call__(self, call: Call) -> Fault:
        for at, (verb, part, fault) in enumerate(self._script):
            if call.verb == verb and part in call.name:
                del self._script[at]
                return fault
        return Fault.NONE

    @property
    def used_up(self) -> bool:
        return not self._script
