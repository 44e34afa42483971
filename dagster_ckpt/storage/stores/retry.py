"""Retries while a store does not answer: bounded, with exponential backoff and jitter."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from dagster_ckpt.clock import Clock
from dagster_ckpt.errors import StoreUnavailableError
from dagster_ckpt.storage.stores.object_store import ObjectStore

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to retry, and the first and the longest pause between two tries."""

    total_ms: int = 60_000
    pause_ms: int = 50
    pause_ms_max: int = 5_000


class RetrySpan:
    """One span of patience: all calls made through it share its end."""

    def __init__(self, clock: Clock, patience: Patience) -> None:
        self._clock = clock
        self._pause_ms = patience.pause_ms
        self._pause_ms_max = patience.pause_ms_max
        self._end_ms = clock.monotonic_ms() + patience.total_ms

    def retry(self, ask: Callable[[], T]) -> T:
        """What `ask` returns, once the store answers. Raises its last `StoreUnavailableError` when patience ends."""
        while True:
            try:
                return ask()
            except StoreUnavailableError:
                if self._clock.monotonic_ms() >= self._end_ms:
                    raise
                self._pause()

    def _pause(self) -> None:
        # Jitter: half of the pause is random, so that writers that failed together do not retry together.
        chance = int(self._clock.unique()[:4], 16) / 0xFFFF
        self._clock.sleep_ms(round(self._pause_ms * (0.5 + chance / 2)))
        self._pause_ms = min(self._pause_ms * 2, self._pause_ms_max)


def retrying(store: ObjectStore, clock: Clock, patience: Patience | None = None) -> ObjectStore:
    """`store`, of which each call is retried for `patience` (default: one minute).

    Returns a local store unchanged: what a local disk refuses now, it refuses a second later too, and the user should
    know. For objects with unique names only, as for `RetryingStore.put_if_absent`.
    """
    if store.local_path("any") is not None:
        return store
    return RetryingStore(store, lambda: RetrySpan(clock, patience or Patience()))


class RetryingStore:
    """`store`, of which each call is retried within the span that `span` returns for it.

    `put_if_absent` may return False because an earlier try of the same call succeeded and its reply was lost. A caller
    that gets False compares bytes or nonces. `list` and `folders` return all names or raise.
    """

    def __init__(self, store: ObjectStore, span: Callable[[], RetrySpan]) -> None:
        self._store = store
        self._span = span

    def retry(self, work: Callable[[], T]) -> T:
        """What `work` returns. The whole of it is repeated while it raises `StoreUnavailableError`."""
        return self._span().retry(work)

    @property
    def url(self) -> str:
        return self._store.url

    def put_if_absent(self, name: str, data: bytes | memoryview) -> bool:
        return self.retry(lambda: self._store.put_if_absent(name, data))

    def put(self, name: str, data: bytes | memoryview) -> None:
        self.retry(lambda: self._store.put(name, data))

    def get(self, name: str) -> bytes:
        return self.retry(lambda: self._store.get(name))

    def get_range(self, name: str, offset: int, length: int) -> bytes:
        return self.retry(lambda: self._store.get_range(name, offset, length))

    def exists(self, name: str) -> bool:
        return self.retry(lambda: self._store.exists(name))

    def size(self, name: str) -> int:
        return self.retry(lambda: self._store.size(name))

    def modified_ms(self, name: str) -> int:
        return self.retry(lambda: self._store.modified_ms(name))

    def delete(self, name: str) -> None:
        self.retry(lambda: self._store.delete(name))

    def list(self, prefix: str, after: str = "") -> Iterator[str]:
        # Read to the end before the first name is returned: a list that is resumed in the middle shows names twice.
        yield from self.retry(lambda: [*self._store.list(prefix, after)])

    def folders(self, prefix: str) -> Iterator[str]:
        yield from self.retry(lambda: [*self._store.folders(prefix)])

    def discard_leftovers(self, prefix: str, before_ms: int) -> int:
        return self.retry(lambda: self._store.discard_leftovers(prefix, before_ms))

    def settle(self, folder: str) -> None:
        self.retry(lambda: self._store.settle(folder))

    def local_path(self, name: str) -> Path | None:
        return self._store.local_path(name)
