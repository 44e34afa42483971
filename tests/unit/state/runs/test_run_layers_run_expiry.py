"""Watermark GC: by the manifest alone where a whole run has expired, and by compaction for the rest."""

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pytest

from dagster_ckpt.lsm.table import Hashes
from dagster_ckpt.protocol.manifest.manifest import SortKind, StateTableSpec, TimeRange
from dagster_ckpt.state.task_state import TaskState
from dagster_ckpt.storage.stores.memory import MemoryObjectStore
from tests.unit.state.epochs import EAGER, NEVER, Epochs, engine
from tests.worlds.faulty_store import FaultyStore

TIME = pa.timestamp("us")
SEEN = StateTableSpec("seen", pa.schema([("k", pa.int64()), ("at", TIME)]), ("k",), time="at")
EVENTS = StateTableSpec("events", pa.schema([("at", TIME), ("k", pa.int64())]), ("at", "k"), SortKind.TIME, time="at")


def hashes(keys: Iterable[int]) -> Hashes:
    return np.array([key * 2**60 for key in keys], dtype=np.uint64)


def put(state: TaskState, *times: int, first: int = 0) -> None:
    """Keys counted from `first`, in both tables."""
    keys = range(first, first + len(times))
    state.table("seen").put(hashes(keys), pa.table({"k": list(keys), "at": times}, schema=SEEN.schema))
    state.timeline("events").put(hashes(keys), pa.table({"at": times, "k": list(keys)}, schema=EVENTS.schema))


def expire(state: TaskState, until_us: int) -> None:
    state.table("seen").expire(until_us)
    state.timeline("events").expire(until_us)


def keys_of(state: TaskState) -> tuple[list[int], list[int]]:
    """What both tables hold."""
    seen = state.table("seen").get(hashes(range(16)), pa.table({"k": range(16)}))
    events = [key for piece in state.timeline("events").scan(None, None) for key in piece["k"].to_pylist()]
    return seen.rows["k"].to_pylist(), sorted(events)


@pytest.fixture
def epochs(request: pytest.FixtureRequest) -> Epochs:
    store = FaultyStore(MemoryObjectStore(request.node.name))
    return Epochs(store, (SEEN, EVENTS), engine=engine(NEVER), shards=2)


def puts(epochs: Epochs) -> int:
    assert isinstance(epochs.store, FaultyStore)
    return sum(call.verb == "put_if_absent" for call in epochs.store.calls)


def test_a_run_that_has_expired_is_dropped_by_the_manifest_alone(epochs: Epochs) -> None:
    for first, times in [(0, (1, 2, 3)), (8, (11, 12, 13))]:
        state = epochs.begin()
        put(state, *times, first=first)
        epochs.commit(state)
    before = puts(epochs)
    state = epochs.begin()
    expire(state, 4)
    manifest = epochs.commit(state)
    assert puts(epochs) == before
    assert [[run.epoch for run in shard] for shard in manifest.runs["seen"]] == [[], [3]]
    assert [[run.epoch for run in shard] for shard in manifest.runs["events"]] == [[], [3]]
    assert keys_of(epochs.begin()) == ([8, 9, 10], [8, 9, 10])
    assert manifest.statistics.state_rows == 6


def test_of_other_runs_less_is_shown_until_they_are_merged(epochs: Epochs) -> None:
    state = epochs.begin()
    put(state, 1, 5, 9)
    epochs.commit(state)
    state = epochs.begin()
    expire(state, 5)
    assert keys_of(state) == ([1, 2], [1, 2])
    manifest = epochs.commit(state)
    [seen], [events] = manifest.runs["seen"][0], manifest.runs["events"][0]
    assert seen.times == TimeRange(5, 9)
    assert (seen.rows, events.rows) == (3, 3), "the files are what they were"
    assert events.clip.lo == 5 + 2**63
    assert keys_of(epochs.begin()) == ([1, 2], [1, 2])
    assert keys_of(epochs.begin()) != keys_of(of_epoch(epochs, 1)), "an epoch before still has its rows"
    epochs.engine = engine(EAGER)
    for _ in range(3):
        state = epochs.begin()
        put(state, 20, 21, first=2)
        epochs.commit(state)
    merged = [run for run in epochs.newest.runs["seen"][0] if run.epoch > 3 and run.level]
    assert sum(run.rows for run in merged) == 3, "the row that had expired is left out"
    assert keys_of(epochs.begin())[0] == [1, 2, 3]


def of_epoch(epochs: Epochs, at: int) -> TaskState:
    past = Epochs(epochs.store, epochs.specs, shards=epochs.shards)
    past.manifests = [epochs.manifests[at]]
    return past.begin()


def test_what_expires_in_the_epoch_that_brought_it_is_never_written(epochs: Epochs) -> None:
    state = epochs.begin()
    put(state, 1, 2, 3)
    expire(state, 10)
    put(state, 4, 5, 16, first=3)
    assert keys_of(state) == ([5], [5])
    manifest = epochs.commit(state)
    assert [run.rows for shard in manifest.runs["seen"] for run in shard] == [1]
    assert [run.rows for shard in manifest.runs["events"] for run in shard] == [1]


def test_a_bound_does_not_go_back_within_an_epoch(epochs: Epochs) -> None:
    state = epochs.begin()
    put(state, 1, 2, 3)
    expire(state, 3)
    expire(state, 1)
    assert keys_of(state) == ([2], [2])


def test_a_tombstone_goes_with_the_row_that_it_hides(epochs: Epochs) -> None:
    state = epochs.begin()
    put(state, 5, 6)
    epochs.commit(state)
    state = epochs.begin()
    state.table("seen").delete(hashes([0, 7]), pa.table({"k": [0, 7]}))
    manifest = epochs.commit(state)
    (tombstone, _) = manifest.runs["seen"][0]
    assert (tombstone.rows, tombstone.tombstones, tombstone.times) == (1, 1, TimeRange(5, 5))
    state = epochs.begin()
    state.table("seen").expire(5)
    assert len(epochs.commit(state).runs["seen"][0]) == 2
    state = epochs.begin()
    state.table("seen").expire(6)
    (left,) = epochs.commit(state).runs["seen"][0]
    assert left.tombstones == 0
    assert keys_of(epochs.begin())[0] == [1]


def test_a_timeline_is_scanned_by_time_also_before_1970_and_across_flushes() -> None:
    epochs = Epochs(MemoryObjectStore("by time"), (SEEN, EVENTS), engine=engine(memory_bytes=1), shards=1)
    state = epochs.begin()
    put(state, 7, -3, 2**62)
    state.relieve()
    put(state, -(2**62), 0, 5, first=3)
    times = [at for piece in state.timeline("events").scan(-3, 8) for at in piece["at"].cast(pa.int64()).to_pylist()]
    assert times == [-3, 0, 5, 7]
    assert list(state.timeline("events").scan(3, 3)) == []
    epochs.commit(state)
    pieces = list(epochs.begin().timeline("events").scan(None, None))
    assert [at for piece in pieces for at in piece["at"].cast(pa.int64()).to_pylist()] == [-(2**62), -3, 0, 5, 7, 2**62]


def test_each_shard_has_a_timeline_of_its_own(epochs: Epochs) -> None:
    state = epochs.begin()
    put(state, *range(16))
    manifest = epochs.commit(state)
    paths = [shard[0].path for shard in manifest.runs["events"]]
    assert paths == ["state/events/00000-of-00002/1-2-0-1-1.arrow", "state/events/00001-of-00002/1-2-0-1-2.arrow"]
