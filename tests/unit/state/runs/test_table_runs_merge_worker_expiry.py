"""The files of a table whose rows expire hold little but live rows, whatever an epoch says of how many of its keys."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import mean

import numpy as np
import pyarrow as pa
import pytest

from dagster_ckpt.lsm.compaction.compaction import CompactionLimits
from dagster_ckpt.protocol.manifest.manifest import Manifest, SortKind, StateTableSpec
from dagster_ckpt.state.committed.table_snapshot import live_rows
from dagster_ckpt.storage.stores.memory import MemoryObjectStore
from tests.unit.state.epochs import NEVER, Epochs, engine

TIME = pa.timestamp("us")
SEEN = StateTableSpec("seen", pa.schema([("k", pa.int64()), ("at", TIME)]), ("k",), time="at")
EVENTS = StateTableSpec("events", pa.schema([("at", TIME), ("k", pa.int64())]), ("at", "k"), SortKind.TIME, time="at")
SPAN_US = 1_000_000
SHARDS = 4

Rows = tuple[np.ndarray, np.ndarray]
"""Distinct keys and their times."""


def new_keys(epoch: int) -> Rows:
    """As where duplicates are looked for: each key once."""
    times = np.random.default_rng(epoch).integers(epoch * SPAN_US, (epoch + 1) * SPAN_US, 3000)
    return np.arange(epoch * 3000, (epoch + 1) * 3000), times


def keys_again(epoch: int) -> Rows:
    """As sessions: most keys in every epoch, a few new ones."""
    keys = np.unique(np.random.default_rng(epoch).integers(epoch * 500, epoch * 500 + 4000, 8000))
    return keys, np.full(len(keys), (epoch + 1) * SPAN_US - 1)


@dataclass(frozen=True)
class Case:
    """Rows an epoch, which live for `life` epochs."""

    rows: Callable[[int], Rows]
    life: int

    def run(self, epochs: Epochs, count: int) -> Iterator[tuple[Manifest, dict[int, int]]]:
        """So many epochs, and what the table holds after each."""
        live: dict[int, int] = {}
        for epoch in range(count):
            keys, times = self.rows(epoch)
            hashes = keys.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
            state = epochs.begin()
            state.table("seen").put(hashes, pa.table({"k": keys, "at": pa.array(times).cast(TIME)}))
            state.timeline("events").put(hashes, pa.table({"at": pa.array(times).cast(TIME), "k": keys}))
            until_us = (epoch + 1 - self.life) * SPAN_US
            state.table("seen").expire(until_us)
            state.timeline("events").expire(until_us)
            live |= dict(zip(keys.tolist(), times.tolist(), strict=True))
            live = {key: at for key, at in live.items() if at >= until_us}
            yield epochs.commit(state), live


CASES = {
    "each key once, ten epochs": Case(new_keys, 10),
    "each key once, thirty epochs": Case(new_keys, 30),
    "the same keys": Case(keys_again, 3),
}


def stored(manifest: Manifest, table: str) -> int:
    """Rows in all the files that the table's runs are in."""
    return sum({ref.path: ref.rows for refs in manifest.runs[table] for ref in refs}.values())


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_files_hold_little_but_live_rows(case: Case, request: pytest.FixtureRequest) -> None:
    limits = CompactionLimits(slice_rows_min=1000, slice_bytes_min=1, search_rows=100, small_rows=100)
    epochs = Epochs(MemoryObjectStore(request.node.name), (SEEN, EVENTS), engine=engine(limits), shards=SHARDS)
    shares = []
    for manifest, live in case.run(epochs, 2 * case.life + 12):
        shares.append(stored(manifest, "seen") / len(live))
    rows = live_rows(epochs.store, epochs.newest, "seen")
    assert dict(zip(rows["k"].to_pylist(), rows["at"].cast(pa.int64()).to_pylist(), strict=True)) == live
    assert mean(shares[-case.life :]) < 1.5
    assert max(shares[-case.life :]) < 1.7


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_without_merges_they_would_hold_more(case: Case, request: pytest.FixtureRequest) -> None:
    """Or the test above says nothing; but where each key comes once, and files expire as a whole, that is best."""
    epochs = Epochs(MemoryObjectStore(request.node.name), (SEEN, EVENTS), engine=engine(NEVER), shards=SHARDS)
    *_, (manifest, live) = case.run(epochs, 2 * case.life + 12)
    assert (stored(manifest, "seen") > 1.8 * len(live)) is (case.rows is keys_again)


def test_a_rewrite_leaves_no_other_file_and_no_tombstone(request: pytest.FixtureRequest) -> None:
    epochs = Epochs(MemoryObjectStore(request.node.name), (SEEN,), shards=SHARDS)
    keys = np.arange(20_000, dtype=np.int64)
    hashes = keys.astype(np.uint64) * np.uint64(2**64 // 20_000)
    rows = pa.table({"k": keys, "at": pa.array(keys).cast(TIME)}, schema=SEEN.schema)
    for _ in range(2):
        state = epochs.begin()
        state.table("seen").put(hashes, rows)
        state.table("seen").delete(hashes[:5000], rows.select(["k"]).slice(0, 5000))
        state.table("seen").expire(10_000)
        epochs.commit(state)
        assert state.metrics.merged_rows == 10_000
        files = {ref.path: ref for refs in epochs.newest.runs["seen"] for ref in refs}
        assert [(ref.rows, ref.tombstones) for ref in files.values()] == [(10_000, 0)]
    state = epochs.begin()
    state.table("seen").delete(hashes, rows.select(["k"]))
    epochs.commit(state)
    assert not any(epochs.newest.runs["seen"]), "nothing is left, and no file says so"
