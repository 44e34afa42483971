"""Defects 4, 6 and 7 of page 4, and the faults of a disk: each fails the task that meets it, with its cause."""

import errno
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pyarrow as pa
import pytest

from dagster_ckpt.errors import CheckpointDeclinedError, CheckpointError, CorruptStateError, StoreUnavailableError
from dagster_ckpt.state.io_pool import IoPool
from dagster_ckpt.state.objects import create
from dagster_ckpt.state.remote.remote_bytes import REQUEST_BYTES_MAX
from dagster_ckpt.storage.stores.local import LocalObjectStore
from dagster_ckpt.storage.stores.memory import MemoryObjectStore
from tests.unit.state.epochs import EAGER, Epochs, engine
from tests.worlds.faulty_store import Call, Fault, FaultyStore, no_faults


class Panic(BaseException):
    """No Exception, on purpose."""


def on_disk(folder: Path) -> Epochs:
    unique = iter(range(10**6))
    return Epochs(LocalObjectStore(folder, lambda: f"t{next(unique)}"))


def faulty(name: str, decide: Callable[[Call], Fault], threads: int = 1) -> Epochs:
    store = FaultyStore(
        MemoryObjectStore(name), lambda call: decide(call) if call.verb == "put_if_absent" else Fault.NONE
    )
    return Epochs(store, engine=engine(EAGER, io=IoPool(threads, waiting_max=1)))


def test_4_a_flush_returns_only_once_every_file_is_durable() -> None:
    go_on, begun, returned = threading.Event(), threading.Event(), threading.Event()

    def slow(call: Call) -> Fault:
        begun.set()
        assert go_on.wait(10)
        return Fault.NONE

    epochs = faulty("slow", slow)
    state = epochs.begin()
    epochs.put(state, a=1)

    def flush() -> None:
        epochs.commit(state)
        returned.set()

    task = threading.Thread(target=flush)
    task.start()
    assert begun.wait(10)
    assert not returned.wait(0.05)
    go_on.set()
    task.join(10)
    assert returned.is_set()
    assert epochs.live() == {"a": 1}


@pytest.mark.parametrize("memory_bytes", [1, 1 << 28], ids=["written in mid-epoch", "written at the end"])
def test_4_a_write_that_failed_is_no_ack(memory_bytes: int) -> None:
    epochs = faulty("failed", lambda _: Fault.LOST_REQUEST)
    epochs.engine = engine(memory_bytes=memory_bytes)
    state = epochs.begin()
    epochs.put(state, a=1)
    state.relieve()
    with pytest.raises(StoreUnavailableError, match=r"name='state/groups/.*arrow'"):
        epochs.commit(state)


@pytest.mark.parametrize("error", [Panic("a bug"), MemoryError("none left"), OSError(errno.EIO, "disk")])
def test_6_after_a_failed_write_or_a_panic_later_writers_go_on(error: BaseException) -> None:
    broken = True

    def decide(call: Call) -> Fault:
        if broken:
            raise error
        return Fault.NONE

    epochs = faulty(f"panic {type(error)}", decide)
    for _ in range(5):  # more often than the pool has threads and places
        with epochs.begin() as state:
            epochs.put(state, a=1)
            with pytest.raises(CheckpointDeclinedError, match=r"while=writing state/groups/.*\.arrow, error="):
                state.flush()
    broken = False
    with epochs.begin() as state:
        epochs.put(state, a=2)
        epochs.commit(state)
    assert epochs.live() == {"a": 2}
    assert epochs.engine.budget.held_bytes == 0


def test_7_a_quota_smaller_than_one_batch_makes_progress() -> None:
    epochs = Epochs(MemoryObjectStore("tiny"), engine=engine(memory_bytes=1, io=IoPool(1, 1, timeout_ms=5000)))
    for step in range(3):
        state = epochs.begin()
        for batch in range(3):
            epochs.put(state, **{f"k{step}-{batch}-{row}": row for row in range(50)})
            state.relieve()
        epochs.commit(state)
        assert len(list(epochs.store.list("state"))) >= 3 * (step + 1), "each batch was written at once"
    assert len(epochs.live()) == 450
    assert epochs.engine.budget.held_bytes == 0


def test_a_full_disk_is_reported_with_the_file_and_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    epochs = on_disk(tmp_path)
    state = epochs.begin()
    epochs.put(state, a=1)
    epochs.commit(state)

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch, epochs.begin() as state:
        patch.setattr("dagster_ckpt.storage.stores.local.os.fsync", full)
        epochs.put(state, a=2)
        with pytest.raises(
            StoreUnavailableError, match=r"free some space.*reason=No space left.*file=.*groups/.*arrow"
        ):
            state.flush()
    state = epochs.begin()
    epochs.put(state, a=3)
    epochs.commit(state)
    assert epochs.live() == {"a": 3}
    assert all(name.endswith(".arrow") for name in epochs.store.list(""))


def test_a_file_that_cannot_be_read_is_named_and_may_be_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    epochs = on_disk(tmp_path)
    state = epochs.begin()
    epochs.put(state, a=1)
    epochs.commit(state)
    epochs.engine = engine()

    def refuse(path: str) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    state = epochs.begin()
    with monkeypatch.context() as patch:
        patch.setattr("dagster_ckpt.state.objects.pa.memory_map", refuse)
        with pytest.raises(StoreUnavailableError, match=f"reason=Input/output error, file={epochs.runs_of()[0].path}"):
            epochs.get(state, "a")
    assert epochs.get(state, "a") == {"a": 1}


def test_a_damaged_block_is_named_and_epochs_before_it_are_not_concerned(tmp_path: Path) -> None:
    epochs = on_disk(tmp_path)
    for value in (1, 2):
        state = epochs.begin()
        epochs.put(state, a=value)
        epochs.commit(state)
    damaged, good = epochs.runs_of()
    path = tmp_path / damaged.path
    content = bytearray(path.read_bytes())
    content[content.index((2).to_bytes(8, "little") + bytes(8))] ^= 1
    path.write_bytes(content)
    epochs.engine = engine()
    with pytest.raises(CorruptStateError, match=f"damaged.*file={damaged.path}"):
        epochs.get(epochs.begin(), "a")
    with pytest.raises(CorruptStateError, match=f"damaged.*file={damaged.path}"):
        epochs.live()
    assert epochs.live(epochs.manifests[1]) == {"a": 1}
    assert good.path != damaged.path


def test_a_damaged_block_stops_the_merge_that_would_spread_it(tmp_path: Path) -> None:
    epochs = on_disk(tmp_path)
    for value in (1, 2):
        state = epochs.begin()
        epochs.put(state, a=value)
        epochs.commit(state)
    path = tmp_path / epochs.runs_of()[0].path
    content = bytearray(path.read_bytes())
    content[content.index((2).to_bytes(8, "little") + bytes(8))] ^= 1
    path.write_bytes(content)
    epochs.engine = engine(EAGER)
    with pytest.raises(CorruptStateError, match="damaged"):
        epochs.begin()


def test_a_table_whose_task_failed_holds_no_memory() -> None:
    epochs = faulty("gives back", lambda _: Fault.LOST_REQUEST)
    epochs.engine = engine(memory_bytes=1 << 20)

    def fail() -> None:
        with epochs.begin() as state:
            epochs.put(state, a=1)
            state.relieve()
            assert epochs.engine.budget.held_bytes > 0
            raise CheckpointError("what an operator may raise")

    with pytest.raises(CheckpointError):
        fail()
    assert epochs.engine.budget.held_bytes == 0


@dataclass
class Nth:
    """Counts the calls that change the store, and lets one of them go wrong."""

    fault: Fault
    at: int
    calls: int = 0

    def __call__(self, call: Call) -> Fault:
        if call.verb not in {"put_if_absent", "delete"}:
            return Fault.NONE
        self.calls += 1
        return self.fault if self.calls == self.at else Fault.NONE


@pytest.mark.parametrize("fault", [Fault.LOST_REQUEST, Fault.LOST_REPLY], ids=["before", "after"])
def test_a_crash_at_any_write_leaves_every_epoch_as_it_was(fault: Fault) -> None:
    """Of an epoch that merges runs of the past, flushes several times and merges its own runs."""
    for at in count(1):
        store = FaultyStore(MemoryObjectStore(f"crash {fault} {at}"))
        epochs = Epochs(store, engine=engine(EAGER, memory_bytes=1, levels_max=2))
        expected = [dict[str, int]()]
        for step in range(4):
            state = epochs.begin()
            epochs.put(state, every=step, **{f"k{step}": step})
            epochs.commit(state)
            expected.append(epochs.live())
        store.decide = crash = Nth(fault, at)
        try:
            epoch_of_many_writes(epochs)
        except CheckpointError:
            assert [epochs.live(manifest) for manifest in epochs.manifests] == expected
            store.decide, epochs.engine = no_faults, engine(EAGER, memory_bytes=1, levels_max=2)
            epoch_of_many_writes(epochs)
        assert epochs.live() == {"every": 12, "k0": 0, "k2": 2, "k3": 3, "a": 1, "b": 2, "c": 3}
        if crash.calls < at:
            break
    assert at > 5


def epoch_of_many_writes(epochs: Epochs) -> None:
    with epochs.begin() as state:
        epochs.put(state, every=10, a=1)
        state.relieve()
        epochs.put(state, every=11, b=2)
        epochs.delete(state, "k1")
        state.relieve()
        epochs.put(state, every=12, c=3)
        epochs.commit(state)


class CollectedAtOnce(MemoryObjectStore):
    """Its reply was lost and it retried by itself; meanwhile a collector took the new object for garbage."""

    def put_if_absent(self, name: str, data: bytes | memoryview) -> bool:
        return False


def test_a_file_that_is_gone_right_after_it_was_written_is_named() -> None:
    with pytest.raises(CorruptStateError, match=r"right after it was written.*file=changes/1-2-0-0\.parquet"):
        create(CollectedAtOnce("collected"), "changes/1-2-0-0.parquet", memoryview(b"rows"))


def test_a_file_that_exists_and_is_not_there_is_put_again() -> None:
    """A proxy's reply, or a collector that was as quick as the retry."""

    class Refuses(MemoryObjectStore):
        refusals = 1

        def put_if_absent(self, name: str, data: bytes | memoryview) -> bool:
            self.refusals -= 1
            return self.refusals < 0 and super().put_if_absent(name, data)

    store = Refuses("refuses once")
    create(store, "state/x", memoryview(b"rows"))
    assert store.get("state/x") == b"rows"


LARGE = 2 * REQUEST_BYTES_MAX + 7


@pytest.mark.parametrize(
    ("size", "reads"),
    [(0, ["get"]), (REQUEST_BYTES_MAX, ["get"]), (LARGE, ["size", *["get_range"] * 3])],
    ids=["empty", "small", "large"],
)
def test_a_file_whose_reply_was_lost_is_compared_in_parts(size: int, reads: list[str]) -> None:
    store = FaultyStore(MemoryObjectStore(f"lost reply {size}"))
    content = bytes([200]) * size
    assert store.put_if_absent("state/x", content)
    store.calls.clear()
    create(store, "state/x", memoryview(pa.py_buffer(content)))
    assert [call.verb for call in store.calls] == ["put_if_absent", *reads]


@pytest.mark.parametrize("other", [b"r0ws", bytes(LARGE + 1), bytes(LARGE - 1) + b"x"], ids=["small", "size", "end"])
def test_a_name_that_is_taken_is_no_lost_reply(other: bytes) -> None:
    store = MemoryObjectStore(f"taken {len(other)}")
    assert store.put_if_absent("state/x", other)
    with pytest.raises(CorruptStateError, match="taken by other bytes"):
        create(store, "state/x", memoryview(b"rows" if len(other) == 4 else bytes(LARGE)))
