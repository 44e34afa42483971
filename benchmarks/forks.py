"""Milliseconds of a fork, of a fork of a fork, and of a rollback.

    python -m benchmarks.forks [--keys 10000000] [--forks 30] [--shards 8] [--folder FOLDER]

A stream of so many keys, count, sum and max each, on local disk with fsync; then forks of its current epoch, forks of a
fork, and the stream goes back by an epoch, again and again. What these take does not depend on what the state holds,
only on how long its manifest is.
"""

import argparse
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import perf_counter, process_time

import numpy as np
import pyarrow as pa

from benchmarks.engine import AGGREGATES, hashes_of
from dagster_ckpt import CheckpointStore
from dagster_ckpt.clock import SystemClock
from dagster_ckpt.ids import Shard
from dagster_ckpt.lsm.table import Hashes
from dagster_ckpt.operators import EpochContext, RunningAggregate
from dagster_ckpt.protocol.ack import ShardAck
from dagster_ckpt.protocol.lease import LeaseHolder
from dagster_ckpt.protocol.manifest.manifest import InputSpec, Owner
from dagster_ckpt.protocol.object_names import FileId
from dagster_ckpt.protocol.transitions.edits import EpochEdit
from dagster_ckpt.state.engine import Engine
from dagster_ckpt.state.tables.task_state import open_state
from dagster_ckpt.storage.leases.process_identity import this_process
from dagster_ckpt.storage.stores.address import open_store
from dagster_ckpt.storage.stores.folder import folder_store
from dagster_ckpt.storage.writer.opening import Opening
from dagster_ckpt.storage.writer.stream_writer import StreamWriter, open_stream

_NAME = "origin"
_ROWS = 500_000
_SCHEMA = pa.schema([("key", pa.int64()), ("value", pa.int64())])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--keys", type=int, default=10_000_000)
    parser.add_argument("--forks", type=int, default=30)
    parser.add_argument("--shards", type=int, default=8)
    parser.add_argument("--folder", type=Path, help="where the store is; it stays there, and is used again")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        url = (options.folder or Path(temporary)).absolute().as_uri()
        store = CheckpointStore(url)
        if _NAME not in store.streams():
            _fill(url, options.keys, options.shards)
        origin = store.stream(_NAME)
        info = origin.latest()
        print(f"{info.state_rows:,} keys, {info.state_bytes / 1e6:,.0f} MB, at most {info.runs} runs in a shard")
        taken = sum(name != _NAME for name in store.streams())
        numbers = range(taken, taken + options.forks)
        _show("a fork", [_timed(partial(origin.fork, f"fork-{number}")) for number in numbers])
        fork = store.stream(f"fork-{taken}")
        _show("a fork of a fork", [_timed(partial(fork.fork, f"second-{number}")) for number in numbers])
        older = [each.epoch for each in origin.epochs() if not each.abandoned][1:16]
        _show("a rollback", [_timed(partial(origin.rollback, epoch)) for epoch in older])


def _timed(act: Callable[[], object]) -> tuple[float, float]:
    wall, cpu = perf_counter(), process_time()
    act()
    return perf_counter() - wall, process_time() - cpu


def _show(what: str, seconds: list[tuple[float, float]]) -> None:
    wall, cpu = np.array(seconds).T * 1e3
    p50, p95 = np.percentile(wall, [50, 95])
    print(f"{what:16} p50 {p50:6.1f} ms   p95 {p95:6.1f} ms   CPU {np.median(cpu):5.1f} ms   of {len(seconds)}")


def _fill(url: str, keys: int, shards: int) -> None:
    """Make the stream, with a part of the keys in each epoch."""
    operator = RunningAggregate.build(("key",), AGGREGATES, InputSpec((), _SCHEMA))
    opening = Opening(
        stream=_NAME,
        owner=Owner("benchmark", _NAME),
        pipeline=operator.pipeline,
        shards=shards,
        holder=LeaseHolder("benchmark", "benchmark", this_process()),
        root_run="benchmark",
    )
    writer, engine = open_stream(folder_store(open_store(url), _NAME), opening, SystemClock()), Engine(SystemClock())
    for batch, start in enumerate(range(0, keys, _ROWS)):
        part = np.arange(start, min(start + _ROWS, keys))
        rows = pa.table({"key": part, "value": part % 1000}, schema=_SCHEMA)
        acks = _acks(writer, operator, engine, hashes_of(part), rows)
        writer.commit(EpochEdit(acks, sources=(), batch_id=batch, epoch_ms=0))
    writer.close("done")


def _acks(
    writer: StreamWriter, operator: RunningAggregate, engine: Engine, hashes: Hashes, rows: pa.Table
) -> tuple[ShardAck, ...]:
    manifest = writer.manifest
    shards = tuple(map(Shard, range(manifest.shards)))
    file = FileId(writer.term, writer.next_epoch, shards[0], attempt=0)
    context = EpochContext(file.epoch, shards, len(shards), None, engine.budget.soft_bytes)
    with open_state(writer.store, manifest, shards, file, engine, operator.logged) as state:
        state.compact()
        operator.on_rows(0, hashes, rows, state, context)
        state.relieve()
        sum(changes.count for changes in operator.finish(state, context))
        lists = state.flush()
        first, *others = (ShardAck(shard, lists[shard]) for shard in shards)
        return (replace(first, changes=state.log, state_rows=state.metrics.state_rows), *others)


if __name__ == "__main__":
    main()
