"""What only a server that speaks S3 can show: moto's in `make test`, a real one in `make test-s3`."""

import multiprocessing
import os
import threading
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import pytest

from dagster_ckpt.clock import SystemClock
from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.state.objects import create
from dagster_ckpt.storage.stores.address import StoreAddress
from dagster_ckpt.storage.stores.object_store import ObjectStore
from dagster_ckpt.storage.stores.probe import prove_atomic_create
from tests.worlds.s3_server import S3Server

THREADS, PROCESSES, ROUNDS = 20, 4, 6


@pytest.fixture
def address(s3_server: S3Server) -> StoreAddress:
    return s3_server.empty()


@pytest.fixture
def store(address: StoreAddress) -> ObjectStore:
    return address.open()


def _race(store: ObjectStore, me: int, wait: threading.Barrier) -> list[bool]:
    won = []
    for number in range(ROUNDS):
        wait.wait(timeout=120)
        won.append(store.put_if_absent(f"race/{number}", b"%d" % me))
    return won


def _race_in_a_process(address: StoreAddress, me: int, begin_s: float) -> list[bool]:
    """No barrier spans processes that share nothing: they meet by the clock."""
    store = address.open()
    store.exists("warm")
    won = []
    for number in range(ROUNDS):
        time.sleep(max(0.0, begin_s + number * 0.15 - time.time()))
        won.append(store.put_if_absent(f"race/{number}", b"%d" % me))
    return won


def _one_winner_each(store: ObjectStore, won: list[list[bool]]) -> None:
    for number in range(ROUNDS):
        winners = [me for me in range(len(won)) if won[me][number]]
        assert len(winners) == 1
        assert store.get(f"race/{number}") == b"%d" % winners[0]


def test_exactly_one_of_twenty_threads_creates_an_object(store: ObjectStore) -> None:
    together = threading.Barrier(THREADS)
    with ThreadPoolExecutor(THREADS) as pool:
        won = list(pool.map(lambda me: _race(store, me, together), range(THREADS)))
    _one_winner_each(store, won)


@pytest.mark.slow
def test_exactly_one_of_four_processes_creates_an_object(address: StoreAddress) -> None:
    with ProcessPoolExecutor(PROCESSES, mp_context=multiprocessing.get_context("spawn")) as pool:
        # All have begun, and loaded what they need, before any races.
        list(pool.map(_race_in_a_process, [address] * PROCESSES, range(PROCESSES), [0.0] * PROCESSES))
        elsewhere = StoreAddress(f"{address.url}/race", address.options)
        begin_s = time.time() + 1
        races = [pool.submit(_race_in_a_process, elsewhere, me, begin_s) for me in range(PROCESSES)]
        won = [race.result(60) for race in races]
    _one_winner_each(elsewhere.open(), won)


def test_the_server_passes_the_probe(store: ObjectStore) -> None:
    prove_atomic_create(store, SystemClock())
    assert list(store.list("")) == []


def test_a_list_goes_on_where_a_page_ends(store: ObjectStore) -> None:
    names = {f"{folder}/{number}" for folder in "abc" for number in range(7)}
    for name in names:
        store.put(name, b"")
    assert set(store.list("")) == names
    assert set(store.folders("")) == {"a", "b", "c"}


def test_what_others_put_into_the_folder_is_no_object(s3_server: S3Server) -> None:
    folder = s3_server.empty()
    store, key = folder.open(), folder.url.removeprefix("s3://").partition("/")[2]
    whole = StoreAddress("s3://checkpoints", folder.options).open()
    store.put("a/b", b"x")
    client = store._client  # type: ignore[attr-defined]
    for name in ["a/", ".hidden", "ä/ö", "with space", "a//b"]:
        client.put(f"{key}/{name}", b"", {})
    assert list(store.list("")) == ["a/b"]
    assert list(store.folders("")) == ["a"]
    assert f"{key}/a/b" in set(whole.list("tests"))


def test_a_large_object_is_created_whole_and_once(store: ObjectStore) -> None:
    large = os.urandom(1024**2) * 12
    assert store.put_if_absent("large", memoryview(large))
    assert not store.put_if_absent("large", memoryview(large)[1:])
    assert store.get("large") == large
    assert store.get_range("large", 9_000_000, 5_000_000) == large[9_000_000:]


def test_a_forked_child_works_on_and_so_does_its_parent(store: ObjectStore) -> None:
    """A user's own code may fork after a stream was opened; Spark's daemon forks before."""
    store.put("before", b"parent")
    child = os.fork()
    if child == 0:
        try:
            done = store.get("before") == b"parent" and store.put_if_absent("child", b"child")
        finally:
            os._exit(0 if done else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert store.get("child") == b"child"
    assert store.put_if_absent("after", b"parent")


def test_a_new_file_of_the_state_is_made_once_however_often_it_is_asked_for(store: ObjectStore) -> None:
    create(store, "state/x", memoryview(b"rows"))
    create(store, "state/x", memoryview(b"rows"))
    assert store.get("state/x") == b"rows"


def test_a_bucket_that_is_not_there_is_named(s3_server: S3Server) -> None:
    store = StoreAddress("s3://no-such-bucket/x", s3_server.options).open()
    with pytest.raises(InvalidPipelineError, match=r"create it, or correct its name\. store=s3://no-such-bucket/x"):
        store.put_if_absent("a", b"")
    with pytest.raises(InvalidPipelineError, match="create it"):
        list(store.list(""))


def test_an_objects_time_is_the_servers_in_whole_seconds(store: ObjectStore) -> None:
    begun = int(time.time())
    store.put("a", b"")
    assert begun * 1000 <= store.modified_ms("a") <= time.time() * 1000
    assert store.modified_ms("a") % 1000 == 0
