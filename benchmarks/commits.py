"""What it takes to make an epoch visible: a manifest that names every shard's runs, durable on the local disk."""

from pathlib import Path
from time import perf_counter

import numpy as np
import pyarrow as pa

from benchmarks.midpass import MidPass
from benchmarks.plan import Commits
from benchmarks.progress import Tell
from dagster_ckpt.clock import SystemClock
from dagster_ckpt.operators import RunningAggregate, agg
from dagster_ckpt.protocol.lease import LeaseHolder
from dagster_ckpt.protocol.manifest.manifest import InputSpec, Owner
from dagster_ckpt.protocol.transitions.edits import EpochEdit
from dagster_ckpt.storage.leases.process_identity import this_process
from dagster_ckpt.storage.stores.local import LocalObjectStore
from dagster_ckpt.storage.writer.opening import Opening
from dagster_ckpt.storage.writer.stream_writer import StreamWriter, open_stream


def run_commits(commits: Commits, folder: Path, tell: Tell) -> dict[str, list[float]]:
    """Seconds of each counted commit, by the writer of streams. The files it names are not there: it reads none."""
    tell(f"{commits.counted} commits of {commits.shards} shards with {commits.runs} runs each")
    writer = _opened(commits, folder / "store")
    [table] = writer.manifest.runs
    stream = MidPass(table, commits, np.random.default_rng(1))
    seconds: list[float] = []
    for batch in range(commits.warm + commits.counted):
        acks = stream.epoch(writer.term, writer.next_epoch)
        began = perf_counter()
        writer.commit(EpochEdit(acks, sources=(), batch_id=batch, epoch_ms=0))
        seconds.append(round(perf_counter() - began, 5))
    writer.close("done")
    return {"seconds": seconds[commits.warm :]}


def _opened(commits: Commits, folder: Path) -> StreamWriter:
    rows = InputSpec((), pa.schema([("k", pa.int64()), ("v", pa.float64())]))
    opening = Opening(
        stream="commits",
        owner=Owner("benchmark", "commits"),
        pipeline=RunningAggregate.build(("k",), {"total": agg.sum("v")}, rows).pipeline,
        shards=commits.shards,
        holder=LeaseHolder("benchmark", "benchmark", this_process()),
        root_run="benchmark",
    )
    clock = SystemClock()
    return open_stream(LocalObjectStore(folder, clock.unique), opening, clock)
