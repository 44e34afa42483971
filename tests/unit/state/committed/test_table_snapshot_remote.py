from dataclasses import replace

import numpy as np
import pytest

from dagster_ckpt.lsm.runs.run import live
from dagster_ckpt.protocol.manifest.manifest import Manifest, RunRef, StateTableSpec
from dagster_ckpt.state.committed.table_snapshot import live_rows
from dagster_ckpt.storage.stores.memory import MemoryObjectStore
from tests.unit.state.epochs import empty_manifest
from tests.worlds.far_runs import SCHEMA, some_run, stored
from tests.worlds.far_store import FarStore

SPEC = StateTableSpec("groups", SCHEMA, ("k",))
RUN = some_run(400_000)


@pytest.fixture(scope="module")
def store() -> FarStore:
    return FarStore(MemoryObjectStore("a snapshot reads far runs in large pieces"), latency_s=0.02)


@pytest.fixture(scope="module")
def ref(store: FarStore) -> RunRef:
    return stored(store, "state/groups/some.arrow", RUN)


def manifest_of(ref: RunRef) -> Manifest:
    return replace(empty_manifest(SPEC), runs={SPEC.name: ((ref,),)})


def test_all_rows_take_few_requests_and_each_byte_once(store: FarStore, ref: RunRef) -> None:
    store.forget()
    rows = live_rows(store, manifest_of(ref), SPEC.name)
    alive = live(RUN).columns()
    assert rows.num_rows == alive.num_rows
    order = np.argsort(rows["k"].to_numpy())
    assert rows.take(order).equals(alive.sort_by("k"))
    assert store.bytes_read <= 1.05 * ref.bytes
    assert len(store.requests) <= 12
    assert store.bytes_read / len(store.requests) > 500_000
    assert store.at_once_max > 1
