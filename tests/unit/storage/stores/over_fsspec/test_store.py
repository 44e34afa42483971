"""The store over calls, without any server: its names, and what it makes of refusals."""

import threading
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from dagster_ckpt.clock import SystemClock
from dagster_ckpt.errors import InvalidPipelineError, StoreUnavailableError
from dagster_ckpt.storage.stores.object_store import ObjectMissingError, ObjectStore
from dagster_ckpt.storage.stores.over_fsspec.calls import Head, Outcome, Refusal
from dagster_ckpt.storage.stores.over_fsspec.store import FsspecObjectStore
from dagster_ckpt.testing.store_suite import StoreSuite


class DictCalls:
    """A server that is a dict. `refusal` is its reply to everything, if there is one."""

    server = "the test"

    def __init__(self, refusal: Refusal | None = None) -> None:
        self.objects: dict[str, tuple[bytes, int]] = {}
        self._refusal = refusal
        self._lock = threading.Lock()

    def create(self, path: str, data: bytes | memoryview) -> None:
        with self._lock:
            self._asked()
            if path in self.objects:
                raise Refusal(Outcome.EXISTS, "")
            self.objects[path] = bytes(data), SystemClock().now_ms()

    def replace(self, path: str, data: bytes | memoryview) -> None:
        self._asked()
        self.objects[path] = bytes(data), SystemClock().now_ms()

    def read(self, path: str, start: int | None = None, until: int | None = None) -> bytes:
        data, _ = self._found(path)
        if start is not None and start >= len(data):
            raise Refusal(Outcome.PAST_END, "")
        return data[start:until]

    def head(self, path: str) -> Head:
        data, modified_ms = self._found(path)
        return Head(len(data), modified_ms)

    def delete(self, path: str) -> None:
        self._found(path)
        del self.objects[path]

    def names(self, folder: str, after: str) -> Iterator[str]:
        self._asked()
        yield from [path for path in self.objects if path.startswith(f"{folder}/" if folder else "")]

    def folders(self, folder: str) -> Iterator[str]:
        below = f"{folder}/" if folder else ""
        rests = [path.removeprefix(below) for path in self.names(folder, "")]
        yield from {below + rest.partition("/")[0] for rest in rests if "/" in rest}

    def discard_leftovers(self, folder: str, before_ms: int) -> int:
        self._asked()
        return 0

    def _found(self, path: str) -> tuple[bytes, int]:
        self._asked()
        if path not in self.objects:
            raise Refusal(Outcome.MISSING, "")
        return self.objects[path]

    def _asked(self) -> None:
        if self._refusal is not None:
            raise self._refusal


SERVERS: defaultdict[str, DictCalls] = defaultdict(DictCalls)


class TestBelowAFolder(StoreSuite):
    def open(self, folder: Path) -> ObjectStore:
        return FsspecObjectStore("dict://a/b", "a/b", SERVERS[f"below {folder}"])


class TestWhole(StoreSuite):
    def open(self, folder: Path) -> ObjectStore:
        return FsspecObjectStore("dict://whole", "", SERVERS[f"whole {folder}"])


def test_what_other_tools_put_there_is_no_object() -> None:
    calls = DictCalls()
    store = FsspecObjectStore("dict://a", "a", calls)
    store.put("b/c", b"x")
    calls.objects |= dict.fromkeys(["a/b/", "a/.hidden", "a/with space", "a//x", "a/.folder/y"], (b"", 0))
    assert list(store.list("")) == ["b/c"]
    assert list(store.folders("")) == ["b"]


def test_an_unknown_outcome_says_what_to_do_and_keeps_no_cause() -> None:
    store = FsspecObjectStore("dict://a", "a", DictCalls(Refusal(Outcome.UNKNOWN, "503", "busy", "wait a while")))
    with pytest.raises(StoreUnavailableError) as caught:
        store.put_if_absent("b", b"x")
    assert str(caught.value) == (
        "the test did not do it: wait a while. reason=503, message='busy', object=b, store=dict://a"
    )
    assert caught.value.__suppress_context__


def test_what_never_works_is_the_users_to_mend() -> None:
    store = FsspecObjectStore("dict://a", "a", DictCalls(Refusal(Outcome.NEVER, "", advice="make the bucket")))
    for ask in (lambda: store.put("b", b""), lambda: store.get("b"), lambda: list(store.list(""))):
        with pytest.raises(InvalidPipelineError, match=r"^make the bucket\. store=dict://a$"):
            ask()


def test_missing_and_past_the_end_are_answers() -> None:
    store = FsspecObjectStore("dict://a", "a", DictCalls(Refusal(Outcome.MISSING, "404")))
    store.delete("b")
    assert not store.exists("b")
    with pytest.raises(ObjectMissingError):
        store.get("b")
    assert FsspecObjectStore("dict://a", "a", DictCalls(Refusal(Outcome.PAST_END, "416"))).get_range("b", 9, 1) == b""


def test_nothing_is_missing_to_what_creates_or_lists() -> None:
    store = FsspecObjectStore("dict://a", "a", DictCalls(Refusal(Outcome.MISSING, "404")))
    for ask in (
        lambda: store.put_if_absent("b", b""),
        lambda: store.put("b", b""),
        lambda: list(store.list("")),
        lambda: list(store.folders("")),
        lambda: store.discard_leftovers("", 1),
    ):
        with pytest.raises(StoreUnavailableError, match="reason=404"):
            ask()
