"""A remote store that is asked again while it does not answer: for work that a single lost reply must not end."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from dagster_ckpt.clock import Clock
from dagster_ckpt.storage.stores.object_store import ObjectStore
from dagster_ckpt.storage.stores.retry import Patience, Tries

T = TypeVar("T")


def retrying(store: ObjectStore, clock: Clock, patience: Patience | None = None) -> ObjectStore:
    """`store`, whose every call waits out a store that does not answer, for `patience` (a minute).

    A local disk is given back as it is: what it refuses, it refuses a second later too, and its user should know.

    Only for objects whose name nobody else has: `put_if_absent` may answer False since an earlier try of the very same
    call succeeded and its reply was lost. Whoever gets False compares bytes.
    """
    return _RetryingStore(store, clock, patience or Patience()) if store.local_path("any") is None else store


class _RetryingStore:
    def __init__(self, store: ObjectStore, clock: Clock, patience: Patience) -> None:
        self._store = store
        self._clock = clock
        self._patience = patience

    @property
    def url(self) -> str:
        return self._store.url

    def put_if_absent(self, name: str, data: bytes | memoryview) -> bool:
        return self._answer(lambda: self._store.put_if_absent(name, data))

    def put(self, name: str, data: bytes | memoryview) -> None:
        self._answer(lambda: self._store.put(name, data))

    def get(self, name: str) -> bytes:
        return self._answer(lambda: self._store.get(name))

    def get_range(self, name: str, offset: int, length: int) -> bytes:
        return self._answer(lambda: self._store.get_range(name, offset, length))

    def exists(self, name: str) -> bool:
        return self._answer(lambda: self._store.exists(name))

    def size(self, name: str) -> int:
        return self._answer(lambda: self._store.size(name))

    def modified_ms(self, name: str) -> int:
        return self._answer(lambda: self._store.modified_ms(name))

    def delete(self, name: str) -> None:
        self._answer(lambda: self._store.delete(name))

    def list(self, prefix: str) -> Iterator[str]:
        # Whole, or begun anew: a list that broke off in the middle would show names twice.
        yield from self._answer(lambda: [*self._store.list(prefix)])

    def folders(self, prefix: str) -> Iterator[str]:
        yield from self._answer(lambda: [*self._store.folders(prefix)])

    def discard_leftovers(self, prefix: str, before_ms: int) -> int:
        return self._answer(lambda: self._store.discard_leftovers(prefix, before_ms))

    def settle(self, folder: str) -> None:
        self._answer(lambda: self._store.settle(folder))

    def local_path(self, name: str) -> Path | None:
        return self._store.local_path(name)

    def _answer(self, ask: Callable[[], T]) -> T:
        return Tries(self._clock, self._patience).retry(ask)
