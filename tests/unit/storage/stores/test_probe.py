import threading
import time
from pathlib import Path
from uuid import uuid4

import pytest

from dagster_ckpt.clock import SystemClock
from dagster_ckpt.errors import InvalidPipelineError, StoreUnavailableError
from dagster_ckpt.storage.stores.local import LocalObjectStore
from dagster_ckpt.storage.stores.memory import MemoryObjectStore
from dagster_ckpt.storage.stores.probe import RACERS, prove_atomic_create
from tests.worlds.clock import StillClock

CLOCK = SystemClock()
CLOCK_OF_SLEEPERS = StillClock()
HOUR_MS = 3_600_000


class Counting(MemoryObjectStore):
    creates = 0

    def put_if_absent(self, name: str, data: bytes | memoryview) -> bool:
        self.creates += 1
        return super().put_if_absent(name, data)


class OverwritingSilently(MemoryObjectStore):
    """As an adapter does that ignores the mode it is asked for."""

    def put_if_absent(self, name: str, data: bytes | memoryview) -> bool:
        self.put(name, data)
        return True


class OverwritingTheLoser(MemoryObjectStore):
    """Says who lost, but only after it wrote."""

    def put_if_absent(self, name: str, data: bytes | memoryview) -> bool:
        existed = self.exists(name)
        self.put(name, data)
        return not existed


class NeverCreating(MemoryObjectStore):
    def put_if_absent(self, name: str, data: bytes | memoryview) -> bool:
        self.put(name, b"first")
        return False


class ExistsThenWrites(MemoryObjectStore):
    """As an adapter does whose server has no conditional create: one request looks, the next one writes."""

    def put_if_absent(self, name: str, data: bytes | memoryview) -> bool:
        if self.exists(name):
            return False
        time.sleep(0.05)  # what another request takes
        self.put(name, data)
        return True


class ExistsThenWritesAFile(LocalObjectStore):
    def put_if_absent(self, name: str, data: bytes | memoryview) -> bool:
        if self.exists(name):
            return False
        time.sleep(0.02)
        self.put(name, data)
        return True


class ConflictsInARace(MemoryObjectStore):
    """As S3 does: while a create is under way, others of the same object are told to try again."""

    def __init__(self, name: str, losers: int) -> None:
        super().__init__(name)
        self._losers = losers
        self._turn = threading.Lock()
        self._refused: dict[str, int] = {}

    def put_if_absent(self, name: str, data: bytes | memoryview) -> bool:
        if not bytes(data).startswith(b"racer"):
            return super().put_if_absent(name, data)
        with self._turn:
            refused = self._refused[name] = self._refused.get(name, 0) + 1
        if refused <= self._losers:
            raise StoreUnavailableError("another create of the same object is under way")
        return super().put_if_absent(name, data)


class LosesTheWinnersReply(MemoryObjectStore):
    """The winner of the first race hears nothing: all others have lost."""

    lost: str | None = None

    def put_if_absent(self, name: str, data: bytes | memoryview) -> bool:
        won = super().put_if_absent(name, data)
        if won and bytes(data).startswith(b"racer") and self.lost is None:
            self.lost = name
            raise StoreUnavailableError("no answer")
        return won


class FailsInARace(MemoryObjectStore):
    def put_if_absent(self, name: str, data: bytes | memoryview) -> bool:
        if bytes(data).startswith(b"racer"):
            raise InvalidPipelineError("this file system has no hard links")
        return super().put_if_absent(name, data)


class CollectedOnce(MemoryObjectStore):
    """The process sleeps after its first create, for so long that a collector takes the object away."""

    sleeps = 1

    def put_if_absent(self, name: str, data: bytes | memoryview) -> bool:
        created = super().put_if_absent(name, data)
        if self.sleeps:
            self.sleeps -= 1
            CLOCK_OF_SLEEPERS.sleep_ms(HOUR_MS)
            self.delete(name)
        return created


class CollectedThrice(CollectedOnce):
    sleeps = 3


class CollectedBeforeItIsRead(MemoryObjectStore):
    """The process sleeps after both creates."""

    slept = False

    def get(self, name: str) -> bytes:
        if not self.slept:
            self.slept = True
            CLOCK_OF_SLEEPERS.sleep_ms(HOUR_MS)
            self.delete(name)
        return super().get(name)


class CollectedInARace(MemoryObjectStore):
    """The process sleeps in a race before its winner is known, so the next racer wins too."""

    slept = False

    def put_if_absent(self, name: str, data: bytes | memoryview) -> bool:
        created = super().put_if_absent(name, data)
        if not self.slept and bytes(data).startswith(b"racer"):
            self.slept = True
            CLOCK_OF_SLEEPERS.sleep_ms(HOUR_MS)
            self.delete(name)
        return created


@pytest.mark.parametrize("sleepy", [CollectedOnce, CollectedThrice, CollectedBeforeItIsRead, CollectedInARace])
def test_a_probe_collected_during_a_long_sleep_is_repeated(sleepy: type[MemoryObjectStore]) -> None:
    store = sleepy(uuid4().hex)
    prove_atomic_create(store, CLOCK_OF_SLEEPERS)
    assert list(store.list("")) == []


def test_an_honest_store_is_proved_once_and_left_as_it_was() -> None:
    store = Counting(uuid4().hex)
    prove_atomic_create(store, CLOCK)
    creates = store.creates
    prove_atomic_create(store, CLOCK)
    assert store.creates == creates
    assert list(store.list("")) == []


@pytest.mark.parametrize("liar", [OverwritingSilently, OverwritingTheLoser, NeverCreating])
def test_a_dishonest_store_is_refused_each_time_and_cleaned(liar: type[MemoryObjectStore]) -> None:
    store = liar(uuid4().hex)
    for _ in range(2):
        with pytest.raises(InvalidPipelineError, match="does not create atomically"):
            prove_atomic_create(store, CLOCK)
    assert list(store.list("")) == []


def test_a_store_that_checks_and_then_writes_is_refused() -> None:
    store = ExistsThenWrites(uuid4().hex)
    with pytest.raises(InvalidPipelineError, match=f"racers={RACERS}, winners="):
        prove_atomic_create(store, CLOCK)
    assert list(store.list("")) == []


def test_a_file_system_store_that_checks_and_then_writes_is_refused(tmp_path: Path) -> None:
    store = ExistsThenWritesAFile(tmp_path, CLOCK.unique)
    with pytest.raises(InvalidPipelineError, match="does not create atomically"):
        prove_atomic_create(store, CLOCK)
    assert list(store.list("")) == []


@pytest.mark.parametrize("losers", [1, RACERS - 1])
def test_a_store_that_refuses_concurrent_creates_is_accepted(losers: int) -> None:
    prove_atomic_create(ConflictsInARace(uuid4().hex, losers), CLOCK)


def test_a_race_whose_winner_got_no_reply_is_run_again() -> None:
    store = LosesTheWinnersReply(uuid4().hex)
    prove_atomic_create(store, StillClock())
    assert store.lost is not None
    assert list(store.list("")) == []


def test_a_store_that_answers_no_race_is_unavailable_and_proves_nothing() -> None:
    store = ConflictsInARace(uuid4().hex, losers=10**6)
    for _ in range(2):
        with pytest.raises(StoreUnavailableError):
            prove_atomic_create(store, StillClock())


def test_an_error_of_a_racer_reaches_the_caller() -> None:
    with pytest.raises(InvalidPipelineError, match="no hard links"):
        prove_atomic_create(FailsInARace(uuid4().hex), CLOCK)
