"""`python -m benchmarks.point_reads`: how long it takes to get 1,000 of 10 million keys from a local disk.

Without Spark: one task puts the keys in as epochs of a million, then the engine's own compaction makes of them what it
makes of any stream. Each look-up asks for other keys; the first of them opens the files.
"""

import statistics
import tempfile
import time
from pathlib import Path

import click
import numpy as np
import pyarrow as pa

from dagster_ckpt import CheckpointStore
from dagster_ckpt.clock import SystemClock
from dagster_ckpt.ids import Shard
from dagster_ckpt.lsm.key_hash import key_hashes
from dagster_ckpt.operators import EpochContext, RunningAggregate, agg
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

SHARDS = 8
STREAM = "sums"
INPUT = pa.schema([("key", pa.int64()), ("value", pa.int64())])


@click.command()
@click.option("--keys", default=10_000_000, show_default=True, help="Keys in the stream.")
@click.option("--asked", default=1_000, show_default=True, help="Keys of a look-up.")
@click.option("--times", default=50, show_default=True, help="Look-ups.")
@click.option("--epoch-rows", default=500_000, show_default=True, help="Keys that an epoch brings.")
def main(keys: int, asked: int, times: int, epoch_rows: int) -> None:
    """Measure look-ups by key."""
    with tempfile.TemporaryDirectory() as folder:
        url = Path(folder).as_uri()
        _fill(url, keys, epoch_rows)
        stream = CheckpointStore(url).stream(STREAM)
        rng, took, worked = np.random.default_rng(7), list[float](), list[float]()
        for _ in range(times):
            wanted = rng.integers(0, keys, asked)
            began, cpu = time.perf_counter(), time.process_time()
            found = stream.get({"key": wanted})
            took.append((time.perf_counter() - began) * 1_000)
            worked.append((time.process_time() - cpu) * 1_000)
            if not np.array_equal(found["key"].to_numpy(), wanted):
                raise click.ClickException("a key was not found")
        click.echo(
            f"{asked:,} of {keys:,} keys, at most {stream.latest().runs} runs in a shard: first {took[0]:.1f} ms, "
            f"then p50 {statistics.median(took[1:]):.1f} ms, p95 {np.percentile(took[1:], 95):.1f} ms, "
            f"least {min(took):.1f} ms; of which CPU, p50, {statistics.median(worked[1:]):.1f} ms"
        )


def _fill(url: str, keys: int, epoch_rows: int) -> None:
    operator = RunningAggregate.build(("key",), {"rows": agg.count(), "total": agg.sum("value")}, InputSpec((), INPUT))
    opening = Opening(
        stream=STREAM,
        owner=Owner("benchmark", STREAM),
        pipeline=operator.pipeline,
        shards=SHARDS,
        holder=LeaseHolder("benchmark", "benchmark", this_process()),
        root_run="benchmark",
        retained=2,
    )
    writer, engine = open_stream(folder_store(open_store(url), STREAM), opening, SystemClock()), Engine(SystemClock())
    every = np.random.default_rng(1).permutation(keys)
    for batch, first in enumerate(range(0, keys, epoch_rows)):
        some = every[first : first + epoch_rows]
        rows = pa.table({"key": some, "value": some % 1_000}, schema=INPUT)
        writer.commit(EpochEdit(_worked(writer, engine, operator, rows), (), batch, epoch_ms=1))
    writer.close("filled")


def _worked(writer: StreamWriter, engine: Engine, operator: RunningAggregate, rows: pa.Table) -> tuple[ShardAck, ...]:
    shards = tuple(map(Shard, range(SHARDS)))
    file = FileId(writer.term, writer.next_epoch, shards[0], 0)
    context = EpochContext(file.epoch, shards, SHARDS, None, 1 << 28)
    with open_state(writer.store, writer.manifest, shards, file, engine, operator.logged) as state:
        state.compact()
        operator.on_rows(0, key_hashes(rows.select(["key"])), rows, state, context)
        rows_out = sum(changes.count for changes in operator.finish(state, context))
        tables = state.flush()
        log = tuple(state.log)
    return tuple(
        ShardAck(shard, tables[shard], log if shard == 0 else (), rows_out=rows_out if shard == 0 else 0)
        for shard in shards
    )


if __name__ == "__main__":
    main()
