"""A stream with one state table, driven epoch by epoch without Spark: what a task and the writer do, and no more."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from dagster_ckpt.ids import EMPTY, FIRST, Epoch, Nonce, Shard, StreamUuid, Term, Version
from dagster_ckpt.lsm.table import Hashes
from dagster_ckpt.protocol.manifest import Manifest, ManifestKind, Owner, Pipeline, RunRef, StateTableSpec
from dagster_ckpt.protocol.names import FileId
from dagster_ckpt.state.open_runs import OpenRuns
from dagster_ckpt.state.shard_state import EngineOptions, ShardState, open_shard
from dagster_ckpt.state.snapshot import live_rows
from dagster_ckpt.storage.memory import MemoryObjectStore
from dagster_ckpt.storage.object_store import ObjectStore

TABLE = "groups"
SPEC = StateTableSpec(TABLE, pa.schema([("k", pa.string()), ("v", pa.int64())]), ("k",))
ONLY = Shard(0)


def empty_manifest(*specs: StateTableSpec, shards: int = 1) -> Manifest:
    pipeline = Pipeline("test", {}, inputs=(), keys=specs[0].keys, tables=specs, output=specs[0].schema)
    return Manifest(
        version=FIRST,
        kind=ManifestKind.OPEN,
        epoch=EMPTY,
        term=Term(1),
        nonce=Nonce("n"),
        time_ms=0,
        stream="s",
        uuid=StreamUuid("u"),
        owner=Owner("i", "s"),
        pipeline=pipeline,
        shards=shards,
        runs={spec.name: ((),) * shards for spec in specs},
    )


def alike(keys: list[str | None]) -> Hashes:
    """One hash for all keys: the hardest collision there is."""
    return np.full(len(keys), 2**63 + 5, dtype=np.uint64)


@dataclass
class Epochs:
    """Commits epochs of one shard. `manifests` has every epoch so far, the empty one first."""

    store: ObjectStore
    spec: StateTableSpec = SPEC
    hash_of: Callable[[list[str | None]], Hashes] = alike
    options: EngineOptions = field(default_factory=EngineOptions)
    manifests: list[Manifest] = field(init=False)
    runs: OpenRuns = field(default_factory=OpenRuns)
    attempts: int = 0

    def __post_init__(self) -> None:
        self.manifests = [empty_manifest(self.spec)]

    @property
    def newest(self) -> Manifest:
        return self.manifests[-1]

    def begin(self) -> ShardState:
        version = Version(self.newest.version + 1)
        self.attempts += 1
        file = FileId(Term(1), Epoch(version), ONLY, self.attempts)
        return open_shard(self.store, self.newest, ONLY, file, self.runs, self.options)

    def commit(self, state: ShardState) -> Manifest:
        version = Version(self.newest.version + 1)
        runs: dict[str, tuple[tuple[RunRef, ...], ...]] = {ack.table: (ack.runs,) for ack in state.flush()}
        statistics = replace(
            self.newest.statistics, state_rows=self.newest.statistics.state_rows + state.state_rows_delta
        )
        manifest = replace(
            self.newest,
            kind=ManifestKind.EPOCH,
            version=version,
            epoch=Epoch(version),
            runs=runs,
            statistics=statistics,
        )
        self.manifests.append(manifest)
        return manifest

    def put(self, state: ShardState, **values: int | None) -> None:
        keys = list(values)
        rows = pa.table({"k": keys, "v": list(values.values())}, schema=self.spec.schema)
        state.table(TABLE).put(self.hash_of(list(keys)), rows)

    def delete(self, state: ShardState, *keys: str) -> None:
        state.table(TABLE).delete(self.hash_of(list(keys)), pa.table({"k": pa.array(keys, pa.string())}))

    def get(self, state: ShardState, *keys: str) -> dict[str, int]:
        found = state.table(TABLE).get(self.hash_of(list(keys)), pa.table({"k": pa.array(keys, pa.string())}))
        assert [key for key, present in zip(keys, found.present, strict=True) if present] == found.rows["k"].to_pylist()
        return dict(zip(found.rows["k"].to_pylist(), found.rows["v"].to_pylist(), strict=True))

    def live(self, manifest: Manifest | None = None) -> dict[str, int]:
        """What a reader who has just started sees."""
        rows = live_rows(self.store, manifest or self.newest, TABLE)
        assert len(set(rows["k"].to_pylist())) == rows.num_rows, "a key is seen once"
        return dict(zip(rows["k"].to_pylist(), rows["v"].to_pylist(), strict=True))


def in_memory(name: str, options: EngineOptions | None = None) -> Epochs:
    return Epochs(MemoryObjectStore(name), options=options or EngineOptions())
