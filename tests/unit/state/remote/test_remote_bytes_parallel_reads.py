from collections.abc import Callable

import numpy as np
import pytest

from dagster_ckpt.errors import StoreUnavailableError
from dagster_ckpt.state.io_pool import IoPool
from dagster_ckpt.state.remote.remote_bytes import PAGE, FarBytes, FarTraffic, MemoryPlace, spread_over
from dagster_ckpt.storage.stores.memory import MemoryObjectStore
from tests.worlds.far_store import FarStore, Request

DATA = np.random.default_rng(1).bytes(1000 * PAGE)
RANGES = [(start * PAGE, start * PAGE + 1) for start in range(0, 1000, 50)]
NAME = "some"


@pytest.fixture
def store(request: pytest.FixtureRequest) -> FarStore:
    store = FarStore(MemoryObjectStore(request.node.name), latency_s=0.02)
    store.put_if_absent(NAME, DATA)
    return store


def test_as_many_requests_as_there_are_threads_are_under_way(store: FarStore) -> None:
    far = FarBytes(store, NAME, MemoryPlace(len(DATA)), FarTraffic(), spread_over(IoPool(threads=5, waiting_max=2)))
    far.fetch(RANGES)
    assert store.at_once_max == 5
    assert len(store.requests) == len(RANGES)
    for start, _ in RANGES:
        assert far.data.slice(start, PAGE).to_pybytes() == DATA[start : start + PAGE]


def test_one_that_fails_is_raised_once_all_have_ended(store: FarStore) -> None:
    def refuse(asked: Request, answer: bytes) -> bytes:
        if asked.start == 0:
            raise StoreUnavailableError("the test's store did not answer: try again.")
        return answer

    store.spoil = refuse
    far = FarBytes(store, NAME, MemoryPlace(len(DATA)), FarTraffic(), spread_over(IoPool(threads=3)))
    with pytest.raises(StoreUnavailableError, match="the test's store"):
        far.fetch(RANGES)
    assert len(store.requests) == len(RANGES)


def test_a_single_request_needs_no_thread(store: FarStore) -> None:
    class NoPool(IoPool):
        def submit(self, what: str, job: Callable[[], object]) -> object:  # type: ignore[override]
            raise AssertionError("a thread was asked for")

    far = FarBytes(store, NAME, MemoryPlace(len(DATA)), FarTraffic(), spread_over(NoPool()))
    far.fetch(RANGES[:1])
    assert far.data.slice(0, PAGE).to_pybytes() == DATA[:PAGE]
