"""What every object store must do, as tests: write a class of your own that says where a store is.

    class TestMyStore(StoreSuite):
        def address(self, folder: Path) -> StoreAddress:
            return StoreAddress(f"mine://{SERVER}/tests{folder}", {"token": "..."})

It needs pytest. A store that cannot be opened by its URL yet overrides `open` instead; then the tests with several
processes, and the probe, are skipped.

The environment variable `RACES` is how often threads and processes race; the default is 15.
"""

import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from dagster_ckpt.clock import SystemClock
from dagster_ckpt.storage.stores.address import StoreAddress
from dagster_ckpt.storage.stores.object_store import ObjectMissingError, ObjectStore
from dagster_ckpt.storage.stores.probe import prove_atomic_create

__all__ = ["StoreAddress", "StoreSuite"]

RACES = int(os.environ.get("RACES", "15"))
THREADS = 8 if RACES < 100 else 20
PROCESSES = 4
_BETWEEN_MS = 150
_PATIENCE_S = 120
_LARGE_NUMBERS = 1_500_000
_OUTSIDE = ["", "/etc/passwd", "../x", "a/../../x", "a//b", "a/", ".hidden", "a/.hidden", "a\\b", "a\0b"]


class StoreSuite:
    """The tests. Each begins with an empty store."""

    def address(self, folder: Path) -> StoreAddress:
        """Where a store is: always the same for a folder, and empty at first.

        `folder` is an empty folder of the test, to keep files in or to make a name of.
        """
        pytest.skip("this store is not opened by its URL")

    def open(self, folder: Path) -> ObjectStore:
        """Open the store of a folder, each time anew."""
        return self.address(folder).open()

    @pytest.fixture
    def open_again(self, tmp_path: Path) -> Callable[[], ObjectStore]:
        return lambda: self.open(tmp_path)

    @pytest.fixture
    def store(self, open_again: Callable[[], ObjectStore]) -> ObjectStore:
        return open_again()

    # ---------------------------------------------------------------------------------------------------- creates

    def test_the_first_create_wins_and_the_second_changes_nothing(self, store: ObjectStore) -> None:
        assert store.put_if_absent("a/b", b"one") is True
        assert store.put_if_absent("a/b", b"two") is False
        assert store.get("a/b") == b"one"

    def test_what_was_written_is_there_when_the_store_is_opened_again(
        self, open_again: Callable[[], ObjectStore]
    ) -> None:
        open_again().put_if_absent("a", b"one")
        assert open_again().get("a") == b"one"
        assert open_again().put_if_absent("a", b"two") is False

    def test_exactly_one_of_many_threads_creates_an_object(self, store: ObjectStore) -> None:
        together = threading.Barrier(THREADS)

        def race(me: int) -> list[bool]:
            won = []
            for number in range(RACES):
                together.wait(timeout=_PATIENCE_S)
                won.append(store.put_if_absent(f"race/{number}", b"%d" % me))
            return won

        with ThreadPoolExecutor(THREADS) as pool:
            won = list(pool.map(race, range(THREADS)))
        _one_winner_each(store, "race", won)

    def test_exactly_one_of_several_processes_creates_an_object(self, tmp_path: Path) -> None:
        address, clock = self.address(tmp_path), SystemClock()
        with ProcessPoolExecutor(PROCESSES, mp_context=multiprocessing.get_context("spawn")) as pool:
            # All have begun, and loaded what they need, before any races.
            list(pool.map(_race_in_a_process, *_arguments(address, "warm", 1, 0)))
            races = pool.map(_race_in_a_process, *_arguments(address, "race", RACES, clock.now_ms() + 1_000))
            won = list(races)
        _one_winner_each(address.open(), "race", won)

    def test_the_store_passes_the_probe(self, tmp_path: Path) -> None:
        store = self.address(tmp_path).open()
        prove_atomic_create(store, SystemClock())
        assert list(store.list("")) == []

    def test_a_reader_of_an_object_under_creation_sees_nothing_or_all_of_it(
        self, store: ObjectStore, open_again: Callable[[], ObjectStore]
    ) -> None:
        large, reader, done = _large(), open_again(), threading.Event()
        seen: list[bytes] = []

        def read() -> None:
            while not done.is_set():
                try:
                    seen.append(reader.get("large"))
                except ObjectMissingError:
                    seen.append(b"")

        thread = threading.Thread(target=read)
        thread.start()
        try:
            assert store.put_if_absent("large", memoryview(large))
        finally:
            done.set()
            thread.join()
        assert all(found in {b"", large} for found in seen)

    def test_a_large_object_is_created_whole_and_once(self, store: ObjectStore) -> None:
        large = _large()
        assert store.put_if_absent("large", memoryview(large))
        assert not store.put_if_absent("large", memoryview(large)[1:])
        assert store.get("large") == large
        assert store.get_range("large", 9_000_000, 5_000_000) == large[9_000_000:]

    def test_a_forked_child_works_on_and_so_does_its_parent(self, tmp_path: Path) -> None:
        """A user's own code may fork after a stream was opened; Spark's daemon forks before."""
        store = self.address(tmp_path).open()
        store.put("before", b"parent")
        child = os.fork()
        if child == 0:
            done = False
            try:
                done = store.get("before") == b"parent" and store.put_if_absent("child", b"child")
            finally:
                os._exit(0 if done else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert store.get("child") == b"child"
        assert store.put_if_absent("after", b"parent")

    # ------------------------------------------------------------------------------------------- writes and reads

    @pytest.mark.parametrize("data", [b"", b"x", bytes(range(256)) * 5000], ids=["none", "one", "many"])
    def test_bytes_come_back_as_they_were(self, store: ObjectStore, data: bytes) -> None:
        assert store.put_if_absent("created", memoryview(data))
        store.put("put", memoryview(data))
        assert store.get("created") == store.get("put") == data
        assert store.size("created") == len(data)

    def test_a_put_replaces_the_whole_object(self, store: ObjectStore) -> None:
        store.put("a", b"a long one")
        store.put("a", b"short")
        assert store.get("a") == b"short"
        assert store.put_if_absent("a", b"new") is False

    def test_a_reader_of_an_object_under_replacement_sees_the_old_one_or_the_new_one(
        self, store: ObjectStore, open_again: Callable[[], ObjectStore]
    ) -> None:
        reader, done = open_again(), threading.Event()
        versions = [b"%d" % number * 2_000 for number in range(10)]
        store.put("lease", versions[0])
        seen: list[bytes] = []

        def read() -> None:
            while not done.is_set():
                seen.append(reader.get("lease"))

        with ThreadPoolExecutor(1) as pool:
            reading = pool.submit(read)
            try:
                for version in versions[1:]:
                    store.put("lease", version)
            finally:
                done.set()
            reading.result(_PATIENCE_S)
        assert set(seen) <= set(versions)
        assert store.get("lease") == versions[-1]

    def test_a_missing_object_is_reported_missing(self, store: ObjectStore) -> None:
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

    def test_a_range_ends_where_the_object_ends(self, store: ObjectStore) -> None:
        store.put("a", b"0123456789")
        assert store.get_range("a", 2, 3) == b"234"
        assert store.get_range("a", 8, 100) == b"89"
        assert store.get_range("a", 10, 1) == store.get_range("a", 99, 1) == store.get_range("a", 3, 0) == b""
        store.put("none", b"")
        assert store.get_range("none", 0, 5) == b""

    def test_a_deleted_object_is_gone_and_its_name_free(self, store: ObjectStore) -> None:
        store.put_if_absent("a", b"one")
        store.delete("a")
        store.delete("a")
        assert not store.exists("a")
        assert list(store.list("")) == []
        assert store.put_if_absent("a", b"two") is True

    def test_an_objects_age_is_measured_by_another_objects(self, store: ObjectStore) -> None:
        store.put("first", b"")
        SystemClock().sleep_ms(10)
        store.put_if_absent("a/second", b"")
        SystemClock().sleep_ms(10)
        assert store.modified_ms("first") <= store.modified_ms("a/second")
        first = store.modified_ms("first")
        store.put("first", b"")
        assert store.modified_ms("first") >= max(first, store.modified_ms("a/second"))
        for name in ["a", "b", "a/second/c"]:
            with pytest.raises(ObjectMissingError):
                store.modified_ms(name)

    # -------------------------------------------------------------------------------------------------- folders

    def test_leftovers_are_no_objects(self, store: ObjectStore) -> None:
        store.put("a/b", b"x")
        assert store.discard_leftovers("", 2**62) == store.discard_leftovers("a", 2**62) == 0
        assert store.discard_leftovers("nothing", 2**62) == 0
        assert store.get("a/b") == b"x"

    def test_a_list_has_every_name_below_the_folder_and_no_other(self, store: ObjectStore) -> None:
        names = {"a/1", "a/b/2", "ab/3", "4"}
        for name in names:
            store.put(name, b"")
        assert set(store.list("")) == names
        assert set(store.list("a")) == {"a/1", "a/b/2"}
        assert set(store.list("a/b")) == {"a/b/2"}
        assert set(store.list("nothing")) == set(store.list("4")) == set()

    def test_a_list_can_begin_after_a_name(self, store: ObjectStore) -> None:
        names = {"a/1", "a/2", "a/3", "a/x", "a/b/1", "ab/3"}
        for name in names:
            store.put(name, b"")
        assert set(store.list("a", "a/2")) == {"a/3", "a/x", "a/b/1"}
        assert set(store.list("a", "a/2.5")) == {"a/3", "a/x", "a/b/1"}
        assert set(store.list("a", "a/x")) == set()
        assert set(store.list("", "a/b/1")) == {"a/x", "ab/3"}

    def test_folders_are_those_right_below(self, store: ObjectStore) -> None:
        for name in ["a/1", "a/b/2", "a/b/c/3", "ab/4", "5"]:
            store.put(name, b"")
        assert set(store.folders("")) == {"a", "ab"}
        assert set(store.folders("a")) == {"a/b"}
        assert set(store.folders("5")) == set(store.folders("nothing")) == set()

    @pytest.mark.parametrize("name", _OUTSIDE)
    def test_no_name_leaves_the_store(self, store: ObjectStore, name: str) -> None:
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

    def test_a_folder_can_be_settled_whether_it_is_there_or_not(self, store: ObjectStore) -> None:
        store.settle("a")
        store.put("a/b", b"x")
        store.settle("a")
        assert store.get("a/b") == b"x"

    def test_a_local_path_leads_to_the_same_bytes(self, store: ObjectStore) -> None:
        store.put("a/b", b"x")
        path = store.local_path("a/b")
        assert path is None or path.read_bytes() == b"x"

    def test_a_name_may_be_listed_and_deleted_at_the_same_time(self, store: ObjectStore) -> None:
        for number in range(3):
            store.put(f"a/{number}", b"")
        seen = []
        names: Iterator[str] = store.list("")
        for name in names:
            seen.append(name)
            store.delete(name)
        assert len(seen) == 3
        assert list(store.list("")) == []


def _large() -> bytes:
    """12 MB, no two parts of which are equal."""
    return b"".join(b"%08d" % number for number in range(_LARGE_NUMBERS))


def _arguments(address: StoreAddress, folder: str, rounds: int, begin_ms: int) -> list[list[Any]]:
    """The arguments of `_race_in_a_process`, for each process."""
    return [[value] * PROCESSES for value in (address, folder, rounds, begin_ms)] + [list(range(PROCESSES))]


def _race_in_a_process(address: StoreAddress, folder: str, rounds: int, begin_ms: int, me: int) -> list[bool]:
    """No barrier spans processes that share nothing: they meet by the clock."""
    store, clock = address.open(), SystemClock()
    store.exists("warm")
    won = []
    for number in range(rounds):
        clock.sleep_ms(max(0, begin_ms + number * _BETWEEN_MS - clock.now_ms()))
        won.append(store.put_if_absent(f"{folder}/{number}", b"%d" % me))
    return won


def _one_winner_each(store: ObjectStore, folder: str, won: list[list[bool]]) -> None:
    for number, of_round in enumerate(zip(*won, strict=True)):
        winners = [me for me, mine in enumerate(of_round) if mine]
        assert len(winners) == 1, f"round {number}: {winners}"
        assert store.get(f"{folder}/{number}") == b"%d" % winners[0]
