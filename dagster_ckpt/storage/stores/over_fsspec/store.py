"""An object store over a filesystem of fsspec, which may be any that can create an object once."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dagster_ckpt.errors import InvalidPipelineError, StoreUnavailableError
from dagster_ckpt.protocol.object_names import is_object_name
from dagster_ckpt.storage.stores.object_store import ObjectMissingError
from dagster_ckpt.storage.stores.over_fsspec.calls import Outcome, Refusal, StoreCalls

_NO_ADVICE = "see whether the server can be reached and what is wrong with it, then try again"


class FsspecObjectStore:
    """The objects below a folder (empty: all of them). Each call asks the server; nothing is cached.

    `modified_ms` may look up to 999 ms older than it is: an age, which is the difference of two, is as coarse. To wait
    for an age, wait one second longer.
    """

    def __init__(self, url: str, folder: str, calls: StoreCalls) -> None:
        self._url = url
        self._folder = folder
        self._calls = calls

    def __repr__(self) -> str:
        return f"FsspecObjectStore({self._url!r})"

    @property
    def url(self) -> str:
        return self._url

    def put_if_absent(self, name: str, data: bytes | memoryview) -> bool:
        path = self._path(name)
        try:
            self._calls.create(path, data)
        except Refusal as refusal:
            if refusal.outcome is Outcome.EXISTS:
                return False
            raise self._failure(name, refusal) from None
        return True

    def put(self, name: str, data: bytes | memoryview) -> None:
        path = self._path(name)
        with self._answering(name):
            self._calls.replace(path, data)

    def get(self, name: str) -> bytes:
        path = self._path(name)
        with self._reading(name):
            return self._calls.read(path)

    def get_range(self, name: str, offset: int, length: int) -> bytes:
        assert offset >= 0, offset
        assert length >= 0, length
        if length == 0:
            self.size(name)  # HTTP has no range of zero bytes
            return b""
        path = self._path(name)
        try:
            return self._calls.read(path, offset, offset + length)
        except Refusal as refusal:
            if refusal.outcome is Outcome.PAST_END:
                return b""
            raise self._failure_of_read(name, refusal) from None

    def exists(self, name: str) -> bool:
        try:
            self.size(name)
        except ObjectMissingError:
            return False
        return True

    def size(self, name: str) -> int:
        path = self._path(name)
        with self._reading(name):
            return self._calls.head(path).size

    def modified_ms(self, name: str) -> int:
        path = self._path(name)
        with self._reading(name):
            return self._calls.head(path).modified_ms

    def delete(self, name: str) -> None:
        path = self._path(name)
        try:
            self._calls.delete(path)
        except Refusal as refusal:
            if refusal.outcome is not Outcome.MISSING:
                raise self._failure(name, refusal) from None

    def list(self, prefix: str, after: str = "") -> Iterator[str]:
        below, first = self._below(prefix), self._path(after) if after else ""
        with self._answering(prefix):
            for path in self._calls.names(below, first):
                # Skip names that other tools created, such as a console's placeholder of a folder.
                if is_object_name(name := self._name(path)) and name > after:
                    yield name

    def folders(self, prefix: str) -> Iterator[str]:
        below = self._below(prefix)
        with self._answering(prefix):
            for path in self._calls.folders(below):
                if is_object_name(name := self._name(path)):
                    yield name

    def discard_leftovers(self, prefix: str, before_ms: int) -> int:
        below = self._below(prefix)
        with self._answering(prefix):
            return self._calls.discard_leftovers(below, before_ms)

    def settle(self, folder: str) -> None:
        _check(folder)

    def local_path(self, name: str) -> Path | None:
        _check(name)
        return None

    @contextmanager
    def _answering(self, name: str) -> Iterator[None]:
        try:
            yield
        except Refusal as refusal:
            raise self._failure(name, refusal) from None

    @contextmanager
    def _reading(self, name: str) -> Iterator[None]:
        try:
            yield
        except Refusal as refusal:
            raise self._failure_of_read(name, refusal) from None

    def _failure_of_read(self, name: str, refusal: Refusal) -> Exception:
        """The error that the caller of a verb gets whose object may be missing."""
        return ObjectMissingError(name) if refusal.outcome is Outcome.MISSING else self._failure(name, refusal)

    def _failure(self, name: str, refusal: Refusal) -> Exception:
        """The error that the caller gets for a refusal. No object can be missing to a verb that creates or lists."""
        if refusal.outcome is Outcome.NEVER:
            reason = f"reason={refusal.reason}, " if refusal.reason else ""
            return InvalidPipelineError(f"{refusal.advice}. {reason}store={self._url}")
        return StoreUnavailableError(
            f"{self._calls.server} did not do it: {refusal.advice or _NO_ADVICE}. reason={refusal.reason}, "
            f"message={refusal.text!r}, object={name}, store={self._url}"
        )

    def _below(self, prefix: str) -> str:
        return self._path(prefix) if prefix else self._folder

    def _path(self, name: str) -> str:
        _check(name)
        return f"{self._folder}/{name}" if self._folder else name

    def _name(self, path: str) -> str:
        return path[len(self._folder) + 1 :] if self._folder else path


def _check(name: str) -> None:
    if not is_object_name(name):
        raise ValueError(f"not a name inside the store. name={name!r}")
