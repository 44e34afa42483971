from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest

from dagster_ckpt.clock import SystemClock
from dagster_ckpt.errors import CorruptStateError, StoreUnavailableError
from dagster_ckpt.state.objects import create
from dagster_ckpt.storage.chain.manifest_chain import ManifestChain
from dagster_ckpt.storage.stores.local import LocalObjectStore
from dagster_ckpt.storage.stores.memory import MemoryObjectStore
from dagster_ckpt.storage.stores.object_store import ObjectMissingError, ObjectStore
from dagster_ckpt.storage.stores.retry import Patience, retrying
from tests.worlds.clock import StillClock
from tests.worlds.faulty_store import Call, Fault, FaultyStore, Scripted

CALLS: dict[str, tuple[Callable[[ObjectStore], object], object]] = {
    "put_if_absent": (lambda store: store.put_if_absent("new", b"x"), True),
    "put": (lambda store: store.put("new", b"x"), None),
    "get": (lambda store: store.get("a/b"), b"bytes"),
    "get_range": (lambda store: store.get_range("a/b", 1, 2), b"yt"),
    "exists": (lambda store: store.exists("a/b"), True),
    "size": (lambda store: store.size("a/b"), 5),
    "modified_ms": (lambda store: store.modified_ms("a/b"), 1_700_000_000_000),
    "delete": (lambda store: store.delete("a/b"), None),
    "list": (lambda store: list(store.list("")), ["a/b"]),
    "folders": (lambda store: list(store.folders("")), ["a"]),
    "discard_leftovers": (lambda store: store.discard_leftovers("", 0), 0),
    "settle": (lambda store: store.settle("a"), None),
}


@pytest.fixture
def clock() -> StillClock:
    return StillClock()


@pytest.fixture
def far(clock: StillClock) -> FaultyStore:
    memory = MemoryObjectStore(uuid4().hex, clock)
    memory.put("a/b", b"bytes")
    return FaultyStore(memory)


@pytest.mark.parametrize("verb", CALLS)
def test_a_call_is_asked_again_until_it_is_answered(far: FaultyStore, clock: StillClock, verb: str) -> None:
    call, answer = CALLS[verb]
    far.decide = Scripted(*[(verb, "", Fault.LOST_REQUEST)] * 3)
    begun = clock.monotonic_ms()
    assert call(retrying(far, clock)) == answer
    assert [each.verb for each in far.calls] == [verb] * 4
    assert 175 <= clock.monotonic_ms() - begun <= 350  # 50, 100 and 200 ms, of each at least a half


@pytest.mark.parametrize("verb", CALLS)
def test_patience_ends(far: FaultyStore, clock: StillClock, verb: str) -> None:
    far.decide = lambda _: Fault.LOST_REQUEST
    begun = clock.monotonic_ms()
    with pytest.raises(StoreUnavailableError):
        CALLS[verb][0](retrying(far, clock, Patience(total_ms=4_000, pause_ms_max=500)))
    assert 4_000 <= clock.monotonic_ms() - begun <= 4_500
    assert len(far.calls) < 25


def test_what_is_no_silence_is_passed_on_at_once(far: FaultyStore, clock: StillClock) -> None:
    with pytest.raises(ObjectMissingError):
        retrying(far, clock).get("missing")
    assert len(far.calls) == 1


def test_writers_that_failed_together_do_not_come_back_together(far: FaultyStore) -> None:
    class ChanceOfManyKinds(StillClock):
        def unique(self) -> str:
            return SystemClock().unique()

    clock = ChanceOfManyKinds()
    far.decide = lambda _: Fault.LOST_REQUEST
    waits = set()
    for _ in range(10):
        begun = clock.monotonic_ms()
        with pytest.raises(StoreUnavailableError):
            retrying(far, clock, Patience(total_ms=1, pause_ms=1_000)).get("a/b")
        waits.add(clock.monotonic_ms() - begun)
    assert len(waits) > 5
    assert all(500 <= wait <= 1_000 for wait in waits)


@pytest.mark.parametrize("fault", [Fault.LOST_REPLY, Fault.LOST_REQUEST])
def test_a_new_file_survives_a_lost_request_or_reply(far: FaultyStore, clock: StillClock, fault: Fault) -> None:
    far.decide = Scripted(("put_if_absent", "", fault))
    create(retrying(far, clock), "state/x", memoryview(b"rows"))
    assert far.get("state/x") == b"rows"


def test_a_name_taken_by_others_is_still_detected(far: FaultyStore, clock: StillClock) -> None:
    far.decide = Scripted(("put_if_absent", "", Fault.LOST_REQUEST))
    with pytest.raises(CorruptStateError, match="a new file's name is taken"):
        create(retrying(far, clock), "a/b", memoryview(b"rows"))


def test_a_put_that_lands_late_changes_nothing(far: FaultyStore, clock: StillClock) -> None:
    far.decide = Scripted(("put_if_absent", "", Fault.LATE))
    create(retrying(far, clock), "state/x", memoryview(b"rows"))
    far.land()
    assert far.get("state/x") == b"rows"


def test_a_list_that_breaks_off_shows_no_name_twice(far: FaultyStore, clock: StillClock) -> None:
    far.put("a/c", b"")
    broken = iter([True, True, False])

    class BreaksOff(FaultyStore):
        def list(self, prefix: str, after: str = ""):  # type: ignore[no-untyped-def]
            for name in self.inner.list(prefix, after):
                yield name
                if next(broken, False):
                    self._call("list", prefix, self._stop)

        def _stop(self) -> None:
            raise StoreUnavailableError("the test's store broke off in the middle of a list: try again. a=b")

    assert sorted(retrying(BreaksOff(far.inner), clock).list("a")) == ["a/b", "a/c"]


def test_a_local_disk_is_not_asked_again(tmp_path: Path) -> None:
    disk = LocalObjectStore(tmp_path, SystemClock().unique)
    assert retrying(disk, StillClock()) is disk


def test_a_call_that_was_never_made_is_not_counted(far: FaultyStore, clock: StillClock) -> None:
    assert retrying(far, clock).url == far.url
    assert retrying(far, clock).local_path("a") is None
    assert far.calls == list[Call]()


def test_the_calls_of_one_span_share_its_end_and_its_growing_pauses(far: FaultyStore, clock: StillClock) -> None:
    store = ManifestChain(far, clock, Patience(total_ms=1_000, pause_ms=100)).span()
    far.decide = Scripted(*[("get", "", Fault.LOST_REQUEST)] * 3)
    begun = clock.monotonic_ms()
    assert store.get("a/b") == b"bytes"
    assert 350 <= clock.monotonic_ms() - begun <= 700  # 100, 200 and 400 ms, of each at least a half
    far.decide = lambda _: Fault.LOST_REQUEST
    with pytest.raises(StoreUnavailableError):
        store.exists("a/b")
    assert 1_000 <= clock.monotonic_ms() - begun <= 1_800
    asked = len(far.calls)
    with pytest.raises(StoreUnavailableError):
        store.exists("a/b")
    assert len(far.calls) == asked + 1
