"""The one suite that every object store passes: what the protocol relies on, and nothing more."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

import pytest

from dagster_ckpt.clock import SystemClock
from dagster_ckpt.storage.stores.folder import folder_store
from dagster_ckpt.storage.stores.local import LocalObjectStore
from dagster_ckpt.storage.stores.memory import MemoryObjectStore
from dagster_ckpt.storage.stores.object_store import ObjectMissingError, ObjectStore
from tests.worlds.disk import folder_on_disk
from tests.worlds.s3_server import S3Server

OUTSIDE = ["", "/etc/passwd", "../x", "a/../../x", "a//b", "a/", ".hidden", "a/.hidden", "a\\b", "a\0b"]


def _local(folder: Path) -> ObjectStore:
    return LocalObjectStore(folder / "store", SystemClock().unique)


def _memory(folder: Path) -> ObjectStore:
    return MemoryObjectStore(str(folder))


def _folder(folder: Path) -> ObjectStore:
    return folder_store(_local(folder), "some.stream")


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    with folder_on_disk() as folder:
        yield folder


@pytest.fixture(params=[_local, _memory, _folder, "s3"], ids=["local", "memory", "folder", "s3"])
def open_again(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], ObjectStore]:
    """Opens the same store, each time anew."""
    if request.param == "s3":
        server: S3Server = request.getfixturevalue("s3_server")
        return server.empty().open
    return lambda: request.param(tmp_path)


@pytest.fixture
def store(open_again: Callable[[], ObjectStore]) -> ObjectStore:
    return open_again()


def test_the_first_create_wins_and_the_second_changes_nothing(store: ObjectStore) -> None:
    assert store.put_if_absent("a/b", b"one") is True
    assert store.put_if_absent("a/b", b"two") is False
    assert store.get("a/b") == b"one"


def test_what_was_written_is_there_when_the_store_is_opened_again(open_again: Callable[[], ObjectStore]) -> None:
    open_again().put_if_absent("a", b"one")
    assert open_again().get("a") == b"one"
    assert open_again().put_if_absent("a", b"two") is False


@pytest.mark.parametrize("data", [b"", b"x", bytes(range(256)) * 5000])
def test_bytes_come_back_as_they_were(store: ObjectStore, data: bytes) -> None:
    assert store.put_if_absent("created", memoryview(data))
    store.put("put", memoryview(data))
    assert store.get("created") == store.get("put") == data
    assert store.size("created") == len(data)


def test_exactly_one_of_many_threads_creates_an_object(open_again: Callable[[], ObjectStore]) -> None:
    rounds = int(os.environ.get("RACES", "15"))
    threads = 8 if rounds < 100 else 20  # as many as you like: `make races`
    store = open_again()
    together = threading.Barrier(threads)

    def race(me: int) -> list[bool]:
        won = []
        for number in range(rounds):
            together.wait(timeout=120)
            won.append(store.put_if_absent(f"race/{number}", b"%d" % me))
        return won

    with ThreadPoolExecutor(threads) as pool:
        won = list(pool.map(race, range(threads)))
    for number in range(rounds):
        winners = [me for me in range(threads) if won[me][number]]
        assert len(winners) == 1
        assert store.get(f"race/{number}") == b"%d" % winners[0]


def test_a_put_replaces_the_whole_object(store: ObjectStore) -> None:
    store.put("a", b"a long one")
    store.put("a", b"short")
    assert store.get("a") == b"short"
    assert store.put_if_absent("a", b"new") is False


def test_a_missing_object_is_reported_missing(store: ObjectStore) -> None:
    store.put("a/b", b"x")
    for name in ["c", "a", "a/b/c", "a/c"]:
        assert not store.exists(name)
        with pytest.raises(ObjectMissingError):
            store.get(name)
        with pytest.raises(ObjectMissingError):
            store.get_range(name, 0, 1)
        with pytest.raises(ObjectMissingError):
            store.size(name)
        store.delete(name)
    assert store.exists("a/b")


def test_a_range_ends_where_the_object_ends(store: ObjectStore) -> None:
    store.put("a", b"0123456789")
    assert store.get_range("a", 2, 3) == b"234"
    assert store.get_range("a", 8, 100) == b"89"
    assert store.get_range("a", 10, 1) == store.get_range("a", 99, 1) == store.get_range("a", 3, 0) == b""


def test_a_deleted_object_is_gone_and_its_name_free(store: ObjectStore) -> None:
    store.put_if_absent("a", b"one")
    store.delete("a")
    store.delete("a")
    assert not store.exists("a")
    assert list(store.list("")) == []
    assert store.put_if_absent("a", b"two") is True


def test_an_objects_age_is_measured_by_another_objects(store: ObjectStore) -> None:
    store.put("first", b"")
    time.sleep(0.01)
    store.put_if_absent("a/second", b"")
    time.sleep(0.01)
    assert store.modified_ms("first") <= store.modified_ms("a/second")
    first = store.modified_ms("first")
    store.put("first", b"")
    assert store.modified_ms("first") >= max(first, store.modified_ms("a/second"))
    for name in ["a", "b", "a/second/c"]:
        with pytest.raises(ObjectMissingError):
            store.modified_ms(name)


def test_leftovers_are_no_objects(store: ObjectStore) -> None:
    store.put("a/b", b"x")
    assert store.discard_leftovers("", 2**62) == store.discard_leftovers("a", 2**62) == 0
    assert store.discard_leftovers("nothing", 2**62) == 0
    assert store.get("a/b") == b"x"


def test_a_list_has_every_name_below_the_folder_and_no_other(store: ObjectStore) -> None:
    names = {"a/1", "a/b/2", "ab/3", "4"}
    for name in names:
        store.put(name, b"")
    assert set(store.list("")) == names
    assert set(store.list("a")) == {"a/1", "a/b/2"}
    assert set(store.list("a/b")) == {"a/b/2"}
    assert set(store.list("nothing")) == set()


def test_a_list_can_begin_after_a_name(store: ObjectStore) -> None:
    names = {"a/1", "a/2", "a/3", "a/x", "a/b/1", "ab/3"}
    for name in names:
        store.put(name, b"")
    assert set(store.list("a", "a/2")) == {"a/3", "a/x", "a/b/1"}
    assert set(store.list("a", "a/2.5")) == {"a/3", "a/x", "a/b/1"}
    assert set(store.list("a", "a/x")) == set()
    assert set(store.list("", "a/b/1")) == {"a/x", "ab/3"}


def test_folders_are_those_right_below(store: ObjectStore) -> None:
    for name in ["a/1", "a/b/2", "a/b/c/3", "ab/4", "5"]:
        store.put(name, b"")
    assert set(store.folders("")) == {"a", "ab"}
    assert set(store.folders("a")) == {"a/b"}
    assert set(store.folders("5")) == set(store.folders("nothing")) == set()


@pytest.mark.parametrize("name", OUTSIDE)
def test_no_name_leaves_the_store(store: ObjectStore, name: str) -> None:
    attempts: list[Callable[[], object]] = [
        lambda: store.put(name, b"x"),
        lambda: store.put_if_absent(name, b"x"),
        lambda: store.get(name),
        lambda: store.get_range(name, 0, 1),
        lambda: store.exists(name),
        lambda: store.size(name),
        lambda: store.modified_ms(name),
        lambda: store.delete(name),
        lambda: store.settle(name),
        lambda: store.local_path(name),
    ]
    if name:
        attempts += [
            lambda: list(store.list(name)),
            lambda: list(store.folders(name)),
            lambda: store.discard_leftovers(name, 0),
        ]
    for attempt in attempts:
        with pytest.raises(ValueError, match="not a name inside"):
            attempt()


def test_a_folder_can_be_settled_whether_it_is_there_or_not(store: ObjectStore) -> None:
    store.settle("a")
    store.put("a/b", b"x")
    store.settle("a")
    assert store.get("a/b") == b"x"


def test_a_local_path_leads_to_the_same_bytes(store: ObjectStore) -> None:
    store.put("a/b", b"x")
    path = store.local_path("a/b")
    assert path is None or path.read_bytes() == b"x"


def test_a_name_may_be_listed_and_deleted_at_the_same_time(store: ObjectStore) -> None:
    for number in range(3):
        store.put(f"a/{number}", b"")
    seen = []
    names: Iterator[str] = store.list("")
    for name in names:
        seen.append(name)
        store.delete(name)
    assert len(seen) == 3
    assert list(store.list("")) == []


def test_two_stores_do_not_see_each_other(tmp_path: Path) -> None:
    first, second = MemoryObjectStore(uuid4().hex), MemoryObjectStore(uuid4().hex)
    first.put("a", b"")
    assert not second.exists("a")
    root = _local(tmp_path)
    left, right = folder_store(root, "left"), folder_store(root, "right")
    left.put("a", b"")
    assert not right.exists("a")
    assert left.url == f"{root.url}/left"
