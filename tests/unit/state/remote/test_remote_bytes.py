import numpy as np
import pytest

from dagster_ckpt.errors import CorruptStateError, StoreUnavailableError
from dagster_ckpt.state.remote.remote_bytes import PAGE, REQUEST_BYTES_MAX, FarBytes, FarTraffic, MemoryPlace
from dagster_ckpt.storage.stores.memory import MemoryObjectStore
from tests.worlds.far_store import FarStore, Request

NAME = "state/groups/some.arrow"
FAR_APART = 100 * PAGE


def random_bytes(size: int) -> bytes:
    return np.random.default_rng(size).bytes(size)


def store_of(data: bytes, request: pytest.FixtureRequest) -> FarStore:
    store = FarStore(MemoryObjectStore(request.node.name))
    store.put_if_absent(NAME, data)
    return store


def far(store: FarStore, size: int) -> FarBytes:
    return FarBytes(store, NAME, MemoryPlace(size), FarTraffic())


def asked(store: FarStore) -> list[tuple[int, int | None]]:
    return [(each.start, each.until) for each in store.requests]


def test_only_the_pages_that_are_asked_for_are_fetched_and_each_once(request: pytest.FixtureRequest) -> None:
    data = random_bytes(300 * PAGE + 5)
    store = store_of(data, request)
    bytes_ = far(store, len(data))
    bytes_.fetch([(10, 20), (FAR_APART + 1, FAR_APART + PAGE + 1)])
    assert asked(store) == [(0, PAGE), (FAR_APART, FAR_APART + 2 * PAGE)]
    here = bytes_.data.to_pybytes()
    assert here[:PAGE] == data[:PAGE]
    assert here[FAR_APART : FAR_APART + 2 * PAGE] == data[FAR_APART : FAR_APART + 2 * PAGE]
    assert not any(here[PAGE:FAR_APART])

    store.forget()
    bytes_.fetch([(0, PAGE), (FAR_APART, FAR_APART + 3)])
    assert store.requests == []

    bytes_.fetch([(len(data) - 1, len(data))])
    assert asked(store) == [(300 * PAGE, 300 * PAGE + 5)], "an object's end is no page's end"


def test_neighbours_are_one_request_and_so_are_those_with_little_between_them(request: pytest.FixtureRequest) -> None:
    data = random_bytes(400 * PAGE)
    store = store_of(data, request)
    bytes_ = far(store, len(data))
    bytes_.fetch([(0, PAGE), (PAGE, 2 * PAGE), (4 * PAGE, 5 * PAGE), (FAR_APART, FAR_APART + 1)])
    assert asked(store) == [(0, 5 * PAGE), (FAR_APART, FAR_APART + PAGE)]
    assert bytes_.data.slice(0, 2 * PAGE).to_pybytes() == data[: 2 * PAGE]
    assert bytes_.data.slice(4 * PAGE, PAGE).to_pybytes() == data[4 * PAGE : 5 * PAGE]


def test_what_was_not_asked_for_is_not_written_over(request: pytest.FixtureRequest) -> None:
    data = random_bytes(3 * PAGE)
    store = store_of(data, request)
    bytes_ = far(store, len(data))
    bytes_.fetch([(PAGE, 2 * PAGE)])
    store.spoil = lambda _, answer: bytes(len(answer))
    bytes_.fetch([(0, PAGE), (2 * PAGE, 3 * PAGE)])
    assert bytes_.data.slice(PAGE, PAGE).to_pybytes() == data[PAGE : 2 * PAGE]


def test_what_comes_damaged_is_not_put(request: pytest.FixtureRequest) -> None:
    data = random_bytes(4 * PAGE)
    bytes_ = far(store_of(data, request), len(data))
    bytes_.fetch([(0, 4 * PAGE)], lambda start, _: [(start + PAGE + 1, start + PAGE + 2)])
    expected = data[:PAGE] + bytes(PAGE) + data[2 * PAGE :]
    assert bytes_.data.to_pybytes() == expected
    bytes_.renew([(PAGE, 2 * PAGE)], lambda start, _: [(start, start + 1)])
    assert bytes_.data.to_pybytes() == expected
    bytes_.renew([(PAGE, 2 * PAGE)], lambda *_: [])
    assert bytes_.data.to_pybytes() == data


def test_much_is_asked_for_in_several_large_requests(request: pytest.FixtureRequest) -> None:
    data = random_bytes(2 * REQUEST_BYTES_MAX + 7)
    store = store_of(data, request)
    bytes_ = far(store, len(data))
    bytes_.fetch([(0, len(data))])
    assert sorted(asked(store)) == [
        (0, REQUEST_BYTES_MAX),
        (REQUEST_BYTES_MAX, 2 * REQUEST_BYTES_MAX),
        (2 * REQUEST_BYTES_MAX, len(data)),
    ]
    assert bytes_.data.to_pybytes() == data


def test_no_request_crosses_what_might_cut_a_block(request: pytest.FixtureRequest) -> None:
    data = random_bytes(REQUEST_BYTES_MAX + 3 * PAGE)
    store = store_of(data, request)
    bytes_ = far(store, len(data))
    bytes_.fetch([(PAGE, REQUEST_BYTES_MAX + PAGE), (REQUEST_BYTES_MAX + 2 * PAGE, len(data))])
    assert sorted(asked(store)) == [(PAGE, REQUEST_BYTES_MAX), (REQUEST_BYTES_MAX, len(data))]


def test_what_is_damaged_is_fetched_again(request: pytest.FixtureRequest) -> None:
    data = random_bytes(3 * PAGE)
    store = store_of(data, request)
    store.spoil = lambda _, answer: bytes(len(answer))
    bytes_ = far(store, len(data))
    bytes_.fetch([(0, PAGE)])
    store.spoil = lambda _, answer: answer
    bytes_.renew([(0, PAGE)])
    assert bytes_.data.slice(0, PAGE).to_pybytes() == data[:PAGE]


def test_an_answer_cut_short_is_asked_for_once_more(request: pytest.FixtureRequest) -> None:
    data = random_bytes(3 * PAGE)
    store = store_of(data, request)
    cut = iter([5, PAGE])
    store.spoil = lambda _, answer: answer[: next(cut)]
    bytes_ = far(store, len(data))
    bytes_.fetch([(PAGE, 2 * PAGE)])
    assert bytes_.data.slice(PAGE, PAGE).to_pybytes() == data[PAGE : 2 * PAGE]


def test_an_object_that_stays_short_is_corrupt(request: pytest.FixtureRequest) -> None:
    data = random_bytes(3 * PAGE)
    store = store_of(data, request)
    bytes_ = far(store, len(data) + PAGE)
    with pytest.raises(CorruptStateError, match=rf"lost bytes.*file={NAME}.*store=far\+memory:"):
        bytes_.fetch([(2 * PAGE, 4 * PAGE)])


def test_an_object_that_is_gone_is_corrupt(request: pytest.FixtureRequest) -> None:
    store = FarStore(MemoryObjectStore(request.node.name))
    with pytest.raises(CorruptStateError, match=rf"missing.*file={NAME}.*store=far\+memory:"):
        far(store, PAGE).fetch([(0, 1)])


def test_a_store_that_did_not_answer_is_asked_again_the_next_time(request: pytest.FixtureRequest) -> None:
    data = random_bytes(300 * PAGE)
    store = store_of(data, request)

    def refuse(asked: Request, answer: bytes) -> bytes:
        if asked.start == FAR_APART:
            raise StoreUnavailableError("the test's store did not answer: try again.")
        return answer

    store.spoil = refuse
    bytes_ = far(store, len(data))
    with pytest.raises(StoreUnavailableError):
        bytes_.fetch([(0, 1), (FAR_APART, FAR_APART + 1)])
    store.spoil = lambda _, answer: answer
    bytes_.fetch([(0, 1), (FAR_APART, FAR_APART + 1)])
    assert bytes_.data.slice(FAR_APART, PAGE).to_pybytes() == data[FAR_APART : FAR_APART + PAGE]
