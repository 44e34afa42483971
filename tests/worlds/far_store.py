"""A store that is far away: nothing of it can be mapped, each request takes its time, and each one is counted."""

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from dagster_ckpt.storage.stores.object_store import ObjectStore


@dataclass(frozen=True)
class Request:
    """A read: which bytes of which object, `[start, until)`; a `get` asks for all of them, so `until` is None."""

    name: str
    start: int
    until: int | None


Spoiler = Callable[[Request, bytes], bytes]
"""What becomes of an answer: damaged, cut short, or as it is. May raise as a store does."""


def honest(request: Request, answer: bytes) -> bytes:
    return answer


@dataclass
class FarStore:
    """Wraps an honest store. Writes go through, reads are listed in `requests` and take `latency_s` each."""

    inner: ObjectStore
    latency_s: float = 0.0
    spoil: Spoiler = honest
    requests: list[Request] = field(default_factory=list)
    bytes_read: int = 0
    at_once_max: int = 0
    _at_once: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def url(self) -> str:
        return f"far+{self.inner.url}"

    def forget(self) -> None:
        """Begin to count anew."""
        self.requests.clear()
        self.bytes_read = 0
        self.at_once_max = 0

    def put_if_absent(self, name: str, data: bytes | memoryview) -> bool:
        return self.inner.put_if_absent(name, data)

    def put(self, name: str, data: bytes | memoryview) -> None:
        self.inner.put(name, data)

    def get(self, name: str) -> bytes:
        return self._answer(Request(name, 0, None), lambda: self.inner.get(name))

    def get_range(self, name: str, offset: int, length: int) -> bytes:
        return self._answer(Request(name, offset, offset + length), lambda: self.inner.get_range(name, offset, length))

    def exists(self, name: str) -> bool:
        return self.inner.exists(name)

    def size(self, name: str) -> int:
        return self.inner.size(name)

    def modified_ms(self, name: str) -> int:
        return self.inner.modified_ms(name)

    def delete(self, name: str) -> None:
        self.inner.delete(name)

    def list(self, prefix: str, after: str = "") -> Iterator[str]:
        yield from self.inner.list(prefix, after)

    def folders(self, prefix: str) -> Iterator[str]:
        yield from self.inner.folders(prefix)

    def discard_leftovers(self, prefix: str, before_ms: int) -> int:
        return self.inner.discard_leftovers(prefix, before_ms)

    def settle(self, folder: str) -> None:
        self.inner.settle(folder)

    def local_path(self, name: str) -> Path | None:
        return None

    def _answer(self, request: Request, read: Callable[[], bytes]) -> bytes:
        with self._lock:
            self.requests.append(request)
            self._at_once += 1
            self.at_once_max = max(self.at_once_max, self._at_once)
        try:
            if self.latency_s:
                time.sleep(self.latency_s)
            answer = self.spoil(request, read())
            with self._lock:
                self.bytes_read += len(answer)
            return answer
        finally:
            with self._lock:
                self._at_once -= 1
