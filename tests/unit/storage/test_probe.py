from uuid import uuid4

import pytest

from dagster_ckpt.clock import SystemClock
from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.storage.memory import MemoryObjectStore
from dagster_ckpt.storage.probe import prove_atomic_create

CLOCK = SystemClock()


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


class CollectedOnce(MemoryObjectStore):
    """The process sleeps after its first create, for so long that a collector takes the object away."""

    sleeps = 1

    def put_if_absent(self, name: str, data: bytes | memoryview) -> bool:
        created = super().put_if_absent(name, data)
        if self.sleeps:
            self.sleeps -= 1
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
            self.delete(name)
        return super().get(name)


@pytest.mark.parametrize("sleepy", [CollectedOnce, CollectedThrice, CollectedBeforeItIsRead])
def test_who_slept_for_so_long_that_its_probe_was_collected_accuses_nobody(sleepy: type[MemoryObjectStore]) -> None:
    store = sleepy(uuid4().hex)
    prove_atomic_create(store, CLOCK)
    assert list(store.list("")) == []


def test_an_honest_store_is_proved_once_and_left_as_it_was() -> None:
    store = Counting(uuid4().hex)
    prove_atomic_create(store, CLOCK)
    prove_atomic_create(store, CLOCK)
    assert store.creates == 2
    assert list(store.list("")) == []


@pytest.mark.parametrize("liar", [OverwritingSilently, OverwritingTheLoser, NeverCreating])
def test_a_store_that_lies_is_refused_each_time_and_cleaned(liar: type[MemoryObjectStore]) -> None:
    store = liar(uuid4().hex)
    for _ in range(2):
        with pytest.raises(InvalidPipelineError, match="does not create atomically"):
            prove_atomic_create(store, CLOCK)
    assert list(store.list("")) == []
