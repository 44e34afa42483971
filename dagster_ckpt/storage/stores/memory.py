"""Objects in this process's memory, for tests of the protocol: Spark's workers cannot reach it."""

import threading
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from dagster_ckpt.clock import Clock, SystemClock
from dagster_ckpt.protocol.object_names import is_object_name
from dagster_ckpt.storage.stores.object_store import ObjectMissingError


@dataclass
class _Contents:
    lock: threading.Lock = field(default_factory=threading.Lock)
    objects: dict[str, bytes] = field(default_factory=dict)
    modified_ms: dict[str, int] = field(default_factory=dict)

    def write(self, name: str, data: bytes | memoryview, now_ms: int) -> None:
        self.objects[name] = bytes(data)
        self.modified_ms[name] = now_ms


_WORLD: defaultdict[str, _Contents] = defaultdict(_Contents)


class MemoryObjectStore:
    """All stores of one name share their objects. `clock` provides their modification times."""

    def __init__(self, name: str, clock: Clock | None = None) -> None:
        self._url = f"memory://{name}"
        self._clock = clock or SystemClock()
        self._contents = _WORLD[name]

    @property
    def url(self) -> str:
        return self._url

    def put_if_absent(self, name: str, data: bytes | memoryview) -> bool:
        _check(name)
        with self._contents.lock:
            if name in self._contents.objects:
                return False
            self._contents.write(name, data, self._clock.now_ms())
            return True

    def put(self, name: str, data: bytes | memoryview) -> None:
        _check(name)
        with self._contents.lock:
            self._contents.write(name, data, self._clock.now_ms())

    def get(self, name: str) -> bytes:
        _check(name)
        with self._contents.lock:
            try:
                return self._contents.objects[name]
            except KeyError:
                raise ObjectMissingError(name) from None

    def get_range(self, name: str, offset: int, length: int) -> bytes:
        assert offset >= 0, offset
        assert length >= 0, length
        return self.get(name)[offset : offset + length]

    def exists(self, name: str) -> bool:
        _check(name)
        with self._contents.lock:
            return name in self._contents.objects

    def size(self, name: str) -> int:
        return len(self.get(name))

    def modified_ms(self, name: str) -> int:
        _check(name)
        with self._contents.lock:
            try:
                return self._contents.modified_ms[name]
            except KeyError:
                raise ObjectMissingError(name) from None

    def delete(self, name: str) -> None:
        _check(name)
        with self._contents.lock:
            self._contents.objects.pop(name, None)
            self._contents.modified_ms.pop(name, None)

    def list(self, prefix: str, after: str = "") -> Iterator[str]:
        below = _below(prefix)
        with self._contents.lock:
            names = [name for name in self._contents.objects if name.startswith(below) and name > after]
        yield from names

    def folders(self, prefix: str) -> Iterator[str]:
        below = _below(prefix)
        parts = (name[len(below) :].split("/") for name in self.list(prefix))
        yield from {below + first for first, *rest in parts if rest}

    def discard_leftovers(self, prefix: str, before_ms: int) -> int:
        _below(prefix)
        return 0

    def settle(self, folder: str) -> None:
        _check(folder)

    def local_path(self, name: str) -> Path | None:
        _check(name)
        return None


def _below(prefix: str) -> str:
    if not prefix:
        return ""
    _check(prefix)
    return f"{prefix}/"


def _check(name: str) -> None:
    if not is_object_name(name):
        raise ValueError(f"not a name inside the store. name={name!r}")
