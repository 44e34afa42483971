"""A stream with one state table, driven epoch by epoch without Spark: what tasks and the writer do, and no more."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from dagster_ckpt.ids import EMPTY, FIRST, Epoch, Nonce, Shard, StreamUuid, Term, Version
from dagster_ckpt.lsm.compaction.compaction import CompactionLimits
from dagster_ckpt.lsm.table import Hashes
from dagster_ckpt.protocol.manifest.manifest import (
    Manifest,
    ManifestKind,
    Owner,
    Pipeline,
    RunRef,
    SortKind,
    StateTableSpec,
)
from dagster_ckpt.protocol.object_names import FileId
from dagster_ckpt.protocol.transitions.edits import Stamp, reshard_manifest
from dagster_ckpt.protocol.transitions.shard_layouts import shows_alike
from dagster_ckpt.protocol.transitions.well_formed import no_row_is_named_twice
from dagster_ckpt.state.committed.table_snapshot import live_rows
from dagster_ckpt.state.engine import Engine, OpenRuns
from dagster_ckpt.state.io_pool import IoPool
from dagster_ckpt.state.memory_budget import MemoryBudget
from dagster_ckpt.state.reshard import TimelineRewrite, reshard_runs
from dagster_ckpt.state.runs.run_writer import RunWriter
from dagster_ckpt.state.task_state import TaskState, open_state
from dagster_ckpt.storage.stores.memory import MemoryObjectStore
from dagster_ckpt.storage.stores.object_store import ObjectStore
from tests.worlds.clock import StillClock

TABLE = "groups"
SPEC = StateTableSpec(TABLE, pa.schema([("k", pa.string()), ("v", pa.int64())]), ("k",))
POOL = IoPool(threads=2)
EAGER = CompactionLimits(
    merge_cost=0.01, depth_min=1, depth_max=2, small_rows=0, small_bytes=0, tier_runs=2, slice_rows_min=1
)
"""Merges in nearly every epoch, and runs of any size."""
NEVER = CompactionLimits(depth_min=10**6, depth_max=10**6, tier_runs=10**6, upper_share=10.0**6)


def engine(
    limits: CompactionLimits | None = None, memory_bytes: int = 1 << 28, io: IoPool = POOL, levels_max: int = 16
) -> Engine:
    return Engine(StillClock(), OpenRuns(), io, MemoryBudget(memory_bytes), limits or CompactionLimits(), levels_max)


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
    """Commits epochs. `manifests` has every epoch so far, the empty one first."""

    store: ObjectStore
    specs: tuple[StateTableSpec, ...] = (SPEC,)
    hash_of: Callable[[list[str | None]], Hashes] = alike
    engine: Engine = field(default_factory=engine)
    shards: int = 1
    logged: str | None = None
    manifests: list[Manifest] = field(init=False)
    attempts: int = 0

    def __post_init__(self) -> None:
        self.manifests = [empty_manifest(*self.specs, shards=self.shards)]

    @property
    def newest(self) -> Manifest:
        return self.manifests[-1]

    def begin(self, shards: Sequence[int] | None = None) -> TaskState:
        """A task that works these shards (None: all) in the next epoch; what is to be merged before it, is."""
        version = Version(self.newest.version + 1)
        self.attempts += 1
        mine = [Shard(shard) for shard in (range(self.newest.shards) if shards is None else shards)]
        file = FileId(Term(1), Epoch(version), mine[0], self.attempts)
        state = open_state(self.store, self.newest, mine, file, self.engine, self.logged)
        state.compact()
        return state

    def commit(self, *tasks: TaskState) -> Manifest:
        """Flush these tasks, which work all shards, and make what they say the newest epoch."""
        version = Version(self.newest.version + 1)
        runs: dict[str, list[tuple[RunRef, ...]]] = {spec.name: [] for spec in self.newest.pipeline.tables}
        acks = [task.flush() for task in tasks]
        for _, tables in sorted(ack for each in acks for ack in each.items()):
            for table in tables:
                runs[table.table].append(table.runs)
        before = self.newest.statistics
        statistics = replace(
            before,
            state_rows=before.state_rows + sum(task.metrics.state_rows for task in tasks),
            table_rows=(before.table_rows or 0) + sum(task.metrics.table_rows for task in tasks),
        )
        manifest = replace(
            self.newest,
            kind=ManifestKind.EPOCH,
            version=version,
            epoch=Epoch(version),
            runs={name: tuple(lists) for name, lists in runs.items()},
            changes=tuple(change for task in tasks for change in task.log),
            statistics=statistics,
        )
        for task in tasks:
            task.close()
        self.manifests.append(manifest)
        return manifest

    def reshard(self, shards: int) -> Manifest:
        """Show the newest epoch with another number of shards, as an epoch of its own."""
        before, version = self.newest, Version(self.newest.version + 1)
        self.attempts += 1
        file = FileId(Term(1), Epoch(version), Shard(0), self.attempts)
        writer = RunWriter(self.store, file, self.engine)
        runs = reshard_runs(before, TimelineRewrite(self.store, self.engine, writer, shards), lambda bytes_: None)
        after = replace(reshard_manifest(before, shards, runs, Stamp(Nonce("r"), 0)), epoch=Epoch(version), changes=())
        timelines = {spec.name for spec in before.pipeline.tables if spec.sort is SortKind.TIME}
        assert all(shows_alike(before.runs[name], runs[name]) for name in runs.keys() - timelines)
        assert no_row_is_named_twice(after)
        self.manifests.append(after)
        return after

    def put(self, state: TaskState, **values: int | None) -> None:
        keys = list(values)
        rows = pa.table({"k": keys, "v": list(values.values())}, schema=self.specs[0].schema)
        state.table(TABLE).put(self.hash_of(list(keys)), rows)

    def delete(self, state: TaskState, *keys: str) -> None:
        state.table(TABLE).delete(self.hash_of(list(keys)), pa.table({"k": pa.array(keys, pa.string())}))

    def get(self, state: TaskState, *keys: str) -> dict[str, int]:
        found = state.table(TABLE).get(self.hash_of(list(keys)), pa.table({"k": pa.array(keys, pa.string())}))
        assert [key for key, present in zip(keys, found.present, strict=True) if present] == found.rows["k"].to_pylist()
        return dict(zip(found.rows["k"].to_pylist(), found.rows["v"].to_pylist(), strict=True))

    def live(self, manifest: Manifest | None = None) -> dict[str, int]:
        """What a reader who has just started sees."""
        rows = live_rows(self.store, manifest or self.newest, TABLE)
        assert len(set(rows["k"].to_pylist())) == rows.num_rows, "a key is seen once"
        return dict(zip(rows["k"].to_pylist(), rows["v"].to_pylist(), strict=True))

    def runs_of(self, shard: int = 0) -> tuple[RunRef, ...]:
        """The runs of a shard in the newest epoch, newest first."""
        return self.newest.runs[self.specs[0].name][shard]


def in_memory(name: str, limits: CompactionLimits | None = None) -> Epochs:
    return Epochs(MemoryObjectStore(name), engine=engine(limits))
