from dataclasses import replace

import numpy as np
import pyarrow as pa

from dagster_ckpt.hash_range import HASH_MAX, HashRange
from dagster_ckpt.ids import Epoch, Shard, Term
from dagster_ckpt.protocol.manifest.manifest import Manifest
from dagster_ckpt.protocol.object_names import FileId
from dagster_ckpt.state.committed.table_snapshot import live_rows
from dagster_ckpt.state.task_state import open_state
from dagster_ckpt.storage.stores.memory import MemoryObjectStore
from tests.unit.state.epochs import SPEC, TABLE, empty_manifest, engine


def written(store: MemoryObjectStore, manifest: Manifest, hashes: list[int], first: int) -> Manifest:
    """These hashes, counted from `first`, in the next epoch."""
    epoch = Epoch(manifest.epoch + 1)
    shards = [Shard(shard) for shard in range(manifest.shards)]
    state = open_state(store, manifest, shards, FileId(Term(1), epoch, Shard(0), attempt=0), engine())
    rows = pa.table({"k": [str(each) for each in hashes], "v": [first + n for n in range(len(hashes))]})
    state.table(TABLE).put(np.array(hashes, dtype=np.uint64), rows)
    lists = state.flush()
    return replace(manifest, epoch=epoch, runs={TABLE: tuple(lists[shard][0].runs for shard in shards)})


def test_the_rows_of_all_shards_and_only_the_columns_asked_for() -> None:
    store = MemoryObjectStore("snapshot")
    manifest = empty_manifest(SPEC, shards=4)
    assert live_rows(store, manifest, TABLE).schema == SPEC.schema
    quarter = 2**62
    manifest = written(store, manifest, [1, quarter, 3 * quarter, HASH_MAX], first=0)
    manifest = written(store, manifest, [quarter, HASH_MAX], first=10)
    assert live_rows(store, manifest, TABLE, ["v"]).to_pydict() == {"v": [0, 10, 2, 11]}
    assert live_rows(store, manifest, TABLE, ["v", "k"]).column_names == ["v", "k"]
    assert live_rows(store, manifest, TABLE, []).num_columns == 0


def test_a_run_is_read_only_as_far_as_the_manifest_shows_it() -> None:
    store = MemoryObjectStore("shown")
    manifest = written(store, empty_manifest(SPEC), [1, 2, 3, 4, 5], first=0)
    (run,) = manifest.runs[TABLE][0]
    clipped = replace(run, clip=HashRange(2, 4))
    moved = replace(run, moved_lo=2, moved_hi=4)
    for ref, shown in ((clipped, ["2", "3", "4"]), (moved, ["1", "4", "5"])):
        shows = replace(manifest, runs={TABLE: ((ref,),)})
        assert live_rows(store, shows, TABLE, ["k"])["k"].to_pylist() == shown
        state = open_state(store, shows, [Shard(0)], FileId(Term(1), Epoch(9), Shard(0), attempt=0), engine())
        keys = pa.table({"k": ["1", "2", "3", "4", "5"]})
        found = state.table(TABLE).get(np.arange(1, 6, dtype=np.uint64), keys)
        assert found.rows["k"].to_pylist() == shown
