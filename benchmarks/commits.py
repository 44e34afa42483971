"""What it takes to make an epoch visible: a manifest that names every shard's runs, durable on the local disk."""

from collections.abc import Sequence
from pathlib import Path
from time import perf_counter

import pyarrow as pa

from benchmarks.plan import Commits
from benchmarks.progress import Tell
from dagster_ckpt.clock import SystemClock
from dagster_ckpt.ids import Epoch, Shard
from dagster_ckpt.operators import RunningAggregate, agg
from dagster_ckpt.protocol.ack import ShardAck, ShardRuns
from dagster_ckpt.protocol.edits import EpochEdit
from dagster_ckpt.protocol.lease import LeaseHolder
from dagster_ckpt.protocol.manifest import ChangeRef, HashRange, InputSpec, Owner, RunRef
from dagster_ckpt.protocol.names import FileId, changes_name, state_name
from dagster_ckpt.storage.local import LocalObjectStore
from dagster_ckpt.storage.opening import Opening
from dagster_ckpt.storage.processes import this_process
from dagster_ckpt.storage.writer import StreamWriter, open_stream

_HASHES = 2**64


def run_commits(commits: Commits, folder: Path, tell: Tell) -> dict[str, list[float]]:
    """Seconds of each counted commit, by the writer of streams. The files it names are not there: it reads none."""
    tell(f"{commits.counted} commits of {commits.shards} shards with {commits.runs} runs each")
    writer = _opened(commits, folder / "store")
    seconds: list[float] = []
    for batch in range(commits.warm + commits.counted):
        acks = tuple(_ack(writer, Shard(shard), commits) for shard in range(commits.shards))
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


def _ack(writer: StreamWriter, shard: Shard, commits: Commits) -> ShardAck:
    """The shard has a new run, in the oldest one's place, and a file of the change log."""
    [(table, shards)] = writer.manifest.runs.items()
    file = FileId(writer.term, writer.next_epoch, shard, attempt=0)
    missing = max(1, commits.runs - len(shards[shard]))
    new = [_run(table, writer.next_epoch, shard, commits.shards, file, number) for number in range(missing)]
    runs: Sequence[RunRef] = (*new, *shards[shard])[: commits.runs]
    change = ChangeRef(changes_name(file), 390, 12_000, f"{file}".zfill(16), writer.next_epoch, shard)
    return ShardAck(shard, (ShardRuns(table, tuple(runs)),), (change,), rows_in=390, rows_out=390)


def _run(table: str, epoch: Epoch, shard: Shard, of: int, file: FileId, number: int) -> RunRef:
    path = state_name(table, (shard,), of, FileId(file.term, epoch, shard, 0, number))
    first = shard * (_HASHES // of)
    hashes = HashRange(first + 12_345 * number, first + _HASHES // of - 1 - epoch)
    return RunRef(path, rows=390, bytes=24_576, checksum=f"{epoch:08x}{shard:08x}", epoch=epoch, hashes=hashes)
