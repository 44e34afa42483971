"""However many shards share it: their parts of a run are side by side, in one file."""

import gc
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dagster_ckpt.hash_range import HASH_MAX, HashRange
from dagster_ckpt.ids import Epoch
from dagster_ckpt.lsm.file.blocks import BLOCK_BYTES
from dagster_ckpt.lsm.file.run_file import decode
from dagster_ckpt.lsm.runs.run import Run, live
from dagster_ckpt.protocol.manifest.manifest import Manifest, RunRef, StateTableSpec
from dagster_ckpt.state.committed import table_snapshot
from dagster_ckpt.state.committed.table_snapshot import live_rows, live_shards
from dagster_ckpt.state.engine import OpenRuns
from dagster_ckpt.storage.stores.local import LocalObjectStore
from dagster_ckpt.storage.stores.memory import MemoryObjectStore
from tests.unit.state.epochs import empty_manifest
from tests.worlds.clock import StillClock
from tests.worlds.far_runs import SCHEMA, some_run, stored
from tests.worlds.far_store import FarStore

SPEC = StateTableSpec("groups", SCHEMA, ("k",))
RUN = some_run(100_000)
PATH = "state/groups/some.arrow"


def shared_by(ref: RunRef, shards: int) -> Manifest:
    """Each shard shows its part of the one run."""
    width = (HASH_MAX + 1) // shards
    parts = tuple((replace(ref, clip=HashRange(shard * width, (shard + 1) * width - 1)),) for shard in range(shards))
    return replace(empty_manifest(SPEC, shards=shards), epoch=Epoch(1), runs={SPEC.name: parts})


@contextmanager
def opened(monkeypatch: pytest.MonkeyPatch) -> Iterator[list["weakref.ref[Run]"]]:
    """The runs that are opened meanwhile."""
    runs: list[weakref.ref[Run]] = []

    def counted(*args: Any) -> Run:
        run = decode(*args)
        runs.append(weakref.ref(run))
        return run

    with monkeypatch.context() as patch:
        patch.setattr("dagster_ckpt.state.engine.decode", counted)
        yield runs


@pytest.mark.parametrize("shards", [8, 64])
def test_each_byte_of_a_far_run_comes_once(shards: int, monkeypatch: pytest.MonkeyPatch) -> None:
    store = FarStore(MemoryObjectStore(f"far {shards}"))
    ref = stored(store, PATH, RUN)
    with opened(monkeypatch) as runs:
        rows = live_rows(store, shared_by(ref, shards), SPEC.name)
    assert rows.num_rows == len(live(RUN))
    assert rows.sort_by("k").equals(live(RUN).columns().sort_by("k"))
    assert len(runs) == 1
    assert store.bytes_read <= 1.1 * ref.bytes
    assert len(store.requests) <= ref.bytes / BLOCK_BYTES, "however many shards there are"


@pytest.mark.parametrize("shards", [8, 64])
def test_a_local_run_is_mapped_once(shards: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = LocalObjectStore(tmp_path, StillClock().unique)
    ref = stored(store, PATH, RUN)
    with opened(monkeypatch) as runs:
        assert sum(rows.num_rows for rows in live_shards(store, shared_by(ref, shards), SPEC.name)) == len(live(RUN))
    assert len(runs) == 1


def test_remote_bytes_are_released_with_the_last_shard_that_names_them(monkeypatch: pytest.MonkeyPatch) -> None:
    store = FarStore(MemoryObjectStore("let go"))
    early, late = (shared_by(stored(store, f"state/groups/{name}", some_run(5000)), 8) for name in ("early", "late"))
    lists = (*early.runs[SPEC.name][:4], *late.runs[SPEC.name][4:])
    alive = []
    with opened(monkeypatch) as runs:
        for _ in live_shards(store, replace(early, runs={SPEC.name: lists}), SPEC.name):
            gc.collect()
            alive.append([run() is not None for run in runs])
    assert alive[0] == [True]
    assert alive[-1] == [False, True]


def test_no_more_far_bytes_are_held_than_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    store = FarStore(MemoryObjectStore("bounded"))
    ref = stored(store, PATH, RUN)
    monkeypatch.setattr(table_snapshot, "_HELD_BYTES_MAX", ref.bytes - 1)
    with opened(monkeypatch) as runs:
        assert live_rows(store, shared_by(ref, 8), SPEC.name).num_rows == len(live(RUN))
    assert len(runs) == 8


def test_a_remote_run_that_is_held_is_shared() -> None:
    store = FarStore(MemoryObjectStore("held"))
    ref = stored(store, PATH, RUN)
    runs = OpenRuns()
    held = runs.run(store, ref, SCHEMA)
    assert runs.run(store, ref, SCHEMA) is held
