"""Milliseconds of one task's part of an epoch, without Spark: rows in, aggregated, state and change log durable.

    python -m benchmarks.engine [--keys 500000] [--rows 100000] [--epochs 30] [--shards 4] [--strings] [--profile]

count, sum and max by one key, keys drawn evenly, everything on local disk with fsync. The epochs that first fill the
state are not counted. CPU is what the process used, the kernel's part (writing, fsync) included: on a busy machine it
says more than the wall clock.
"""

import argparse
import cProfile
import pstats
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import perf_counter, process_time
from uuid import uuid4

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dagster_ckpt.clock import SystemClock
from dagster_ckpt.ids import Epoch, Nonce, Shard, StreamUuid, Term, Version
from dagster_ckpt.lsm.table import Hashes
from dagster_ckpt.operators import EpochContext, RunningAggregate, agg
from dagster_ckpt.operators.aggregates.aggregate import GROUPS
from dagster_ckpt.operators.operator import change_log_table
from dagster_ckpt.protocol.manifest.manifest import InputSpec, Manifest, Owner
from dagster_ckpt.protocol.object_names import FileId
from dagster_ckpt.protocol.transitions.edits import Beginning, Stamp, first_manifest
from dagster_ckpt.state.engine import Engine
from dagster_ckpt.state.task_state import open_state
from dagster_ckpt.storage.stores.local import LocalObjectStore
from dagster_ckpt.storage.stores.object_store import ObjectStore

AGGREGATES = {"rows": agg.count(), "total": agg.sum("value"), "greatest": agg.max("value")}
Numbers = npt.NDArray[np.int64]


@dataclass
class Stopwatch:
    """Wall and CPU milliseconds of each named part."""

    parts: defaultdict[str, list[tuple[float, float]]] = field(default_factory=lambda: defaultdict(list))

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        wall, cpu = perf_counter(), process_time()
        yield
        self.parts[name].append(((perf_counter() - wall) * 1e3, (process_time() - cpu) * 1e3))

    def show(self) -> None:
        print(f"{'part':12} {'p50 wall':>9} {'p95 wall':>9} {'p50 CPU':>9} {'mean CPU':>9}  (ms)")
        for name, times in self.parts.items():
            wall, cpu = np.array(times).T
            walls = np.percentile(wall, [50, 95])
            print(f"{name:12} {walls[0]:9.2f} {walls[1]:9.2f} {np.median(cpu):9.2f} {cpu.mean():9.2f}")


@dataclass
class OneTask:
    """A stream all of whose shards one task works, epoch after epoch."""

    store: ObjectStore
    operator: RunningAggregate
    manifest: Manifest
    engine: Engine = field(default_factory=lambda: Engine(SystemClock()))
    merged_rows: list[int] = field(default_factory=list)

    def epoch(self, hashes: Hashes, rows: pa.Table, stopwatch: Stopwatch) -> None:
        version = Version(self.manifest.version + 1)
        shards = tuple(map(Shard, range(self.manifest.shards)))
        file = FileId(Term(1), Epoch(version), shards[0], attempt=0)
        context = EpochContext(Epoch(version), shards, len(shards), None, self.engine.budget.soft_bytes)
        with (
            stopwatch.part("whole"),
            open_state(self.store, self.manifest, shards, file, self.engine, change_log_table(self.operator)) as state,
        ):
            with stopwatch.part("compact"):
                state.compact()
            with stopwatch.part("on_rows"):
                self.operator.on_rows(0, hashes, rows, state, context)
                state.relieve()
            with stopwatch.part("finish"):
                sum(changes.count for changes in self.operator.finish(state, context))
            with stopwatch.part("flush"):
                lists = state.flush()
        self.merged_rows.append(state.metrics.merged_rows)
        runs = {GROUPS: tuple(lists[shard][0].runs for shard in shards)}
        self.manifest = replace(self.manifest, version=version, epoch=Epoch(version), runs=runs)


def empty_stream(operator: RunningAggregate, shards: int) -> Manifest:
    beginning = Beginning("benchmark", StreamUuid("u"), Owner("i", "benchmark"), operator.pipeline, shards)
    return first_manifest(beginning, Stamp(Nonce("n"), 0))


def hashes_of(keys: Numbers) -> Hashes:
    """As even as Spark's, and cheap."""
    mixed = keys.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return mixed ^ (mixed >> np.uint64(29))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--keys", type=int, default=500_000)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--shards", type=int, default=4)
    parser.add_argument("--strings", action="store_true", help="string keys")
    parser.add_argument("--profile", action="store_true", help="show where the CPU goes")
    options = parser.parse_args()

    chance = np.random.default_rng(1)
    key_type = pa.string() if options.strings else pa.int64()
    names = np.array([f"N{key:07d}" if options.strings else key for key in range(options.keys)])
    schema = pa.schema([("key", key_type), ("value", pa.int64())])
    operator = RunningAggregate.build(("key",), AGGREGATES, InputSpec((), schema))

    with tempfile.TemporaryDirectory() as folder:
        store = LocalObjectStore(Path(folder), lambda: uuid4().hex)
        task = OneTask(store, operator, empty_stream(operator, options.shards))

        def run(keys: Numbers, stopwatch: Stopwatch) -> None:
            values = pa.array(chance.integers(0, 1000, len(keys)))
            rows = pa.Table.from_arrays([pa.array(names[keys], key_type), values], schema=schema)
            task.epoch(hashes_of(keys), rows, stopwatch)

        for start in range(0, options.keys, options.rows):
            run(np.arange(start, min(start + options.rows, options.keys)), Stopwatch())
        stopwatch = Stopwatch()
        profile = cProfile.Profile(process_time)
        with profile if options.profile else nullcontext():
            for _ in range(options.epochs):
                run(chance.integers(0, options.keys, options.rows), stopwatch)
        if options.profile:
            pstats.Stats(profile).sort_stats("tottime").print_stats(25)
    stopwatch.show()
    merged = task.merged_rows[-options.epochs :]
    print(f"rows merged an epoch: median {np.median(merged):,.0f}, most {max(merged):,}")
    print("runs of the first shard, newest first:", [run.rows for run in task.manifest.runs[GROUPS][0]])


if __name__ == "__main__":
    main()
