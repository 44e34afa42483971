"""A store whose calls are retried while it does not answer, so that one lost reply does not end the work."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from dagster_ckpt.clock import Clock
from dagster_ckpt.storage.stores.object_store import ObjectStore
from dagster_ckpt.storage.stores.retry import Patience, RetrySpan

T = TypeVar("T")


def retrying(store: ObjectStore, clock: Clock, patience: Patience | None = None) -> ObjectStore:
    """`store`, of which each call is retried for `patience` (default: one minute).

    Returns a local store unchanged: what a local disk refuses now, it refuses a second later too, and the user should
    know. For objects with unique names only, as `RetryingStore` says of `put_if_absent`.
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
