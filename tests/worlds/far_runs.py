"""A run in a far store, as a manifest would name it."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from dagster_ckpt.hash_range import HashRange
from dagster_ckpt.ids import Epoch
from dagster_ckpt.lsm.file.run_file import encode
from dagster_ckpt.lsm.runs.run import Run, build_run
from dagster_ckpt.protocol.manifest.manifest import RunRef
from dagster_ckpt.state.engine import OpenRuns
from dagster_ckpt.state.remote.remote_bytes import FarTraffic
from dagster_ckpt.state.remote.run_cache import RunCache
from dagster_ckpt.storage.stores.object_store import ObjectStore

SCHEMA = pa.schema([("k", pa.int64()), ("name", pa.string()), ("v", pa.int64())])


def some_run(rows: int, seed: int = 0) -> Run:
    """Distinct keys under random hashes, an eighth of them tombstones. The values need all their 64 bits."""
    chance = np.random.default_rng(seed)
    hashes = np.sort(chance.integers(0, 2**64, rows, dtype=np.uint64))
    keys = np.arange(rows)
    names = pa.array(keys).cast(pa.string())
    return build_run(hashes, pa.table([keys, names, (keys + 2**40) * 3], schema=SCHEMA), keys % 8 == 7)


def stored(store: ObjectStore, path: str, run: Run) -> RunRef:
    """Write the run's file."""
    file = encode(run)
    assert store.put_if_absent(path, memoryview(file.data))
    hashes = HashRange(int(run.hashes[0]), int(run.hashes[-1]))
    return RunRef(path, len(run), file.data.size, file.checksum, Epoch(1), hashes=hashes)


@dataclass(frozen=True)
class Reader:
    """What one process has."""

    cache: RunCache
    runs: OpenRuns

    @property
    def traffic(self) -> FarTraffic:
        return self.runs.traffic


def reader(folder: Path, limit_bytes: int = 1 << 40) -> Reader:
    """A process that has just started."""
    cache = RunCache(folder, limit_bytes)
    return Reader(cache, OpenRuns(cache=cache))


def same(one: Run, other: Run) -> bool:
    """Whether two runs have the same rows; reads all there is of both, filter and directory too."""
    one.read_index()
    assert one.tombstones is not None
    assert other.tombstones is not None
    return (
        one.columns().equals(other.columns())
        and np.array_equal(one.hashes, other.hashes)
        and np.array_equal(one.tombstones, other.tombstones)
    )
