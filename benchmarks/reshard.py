"""Another number of shards for a stream of ten million keys, by the manifest alone and with a timeline of as many rows.

python -m benchmarks.reshard <empty folder> [keys]
"""

import json
import sys
import threading
from pathlib import Path
from time import perf_counter, sleep

import numpy as np
import pyarrow as pa

from dagster_ckpt import CheckpointStore
from dagster_ckpt.clock import SystemClock
from dagster_ckpt.ids import Shard
from dagster_ckpt.operators import EpochContext, Operator, RunningAggregate, agg
from dagster_ckpt.operators.shared.window_kinds import Tumbling
from dagster_ckpt.operators.windows.window_aggregate import WindowAggregate
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

BEFORE, AFTER = 8, 32
_CHUNK_ROWS = 500_000
_EPOCH_ROWS = 2_500_000
_HOUR_US = 3_600_000_000
_ROWS = InputSpec((), pa.schema([("k", pa.int64()), ("v", pa.float64()), ("at", pa.timestamp("us", "UTC"))]))
_SPREAD = np.uint64(0x9E3779B97F4A7C15)


def totals() -> RunningAggregate:
    """Sorted by hash, all of it."""
    return RunningAggregate.build(("k",), {"rows": agg.count(), "total": agg.sum("v")}, _ROWS)


def by_hour() -> WindowAggregate:
    """A window for each key, and an entry in a timeline that says when it ends: all at one of ten moments."""
    return WindowAggregate.build(("k",), {"total": agg.sum("v")}, _ROWS, "at", Tumbling(_HOUR_US))


def run(folder: Path, keys: int, name: str, operator: Operator) -> dict[str, object]:
    """Seconds to reshard up and down again, and what the process held at most meanwhile, beyond what it held before."""
    _fill(folder, keys, name, operator)
    history = CheckpointStore(folder.as_uri()).stream(name)
    figures: dict[str, object] = {"stream": name, "keys": keys, "state_bytes": history.latest().state_bytes}
    for shards in (AFTER, BEFORE):
        watch = _Watch()
        began = perf_counter()
        history.reshard(shards)
        figures[f"to {shards}, seconds"] = round(perf_counter() - began, 3)
        figures[f"to {shards}, MiB held at most"] = watch.ended() >> 20
    return figures


def _fill(folder: Path, keys: int, name: str, operator: Operator) -> None:
    store, clock = folder_store(open_store(folder.as_uri()), name), SystemClock()
    opening = Opening(
        stream=name,
        owner=Owner("benchmark", name),
        pipeline=operator.pipeline,
        shards=BEFORE,
        holder=LeaseHolder("benchmark", "benchmark", this_process()),
        root_run="benchmark",
    )
    writer, engine = open_stream(store, opening, clock), Engine(clock)
    for number, first in enumerate(range(0, keys, _EPOCH_ROWS)):
        acks = _epoch(writer, operator, engine, range(first, min(first + _EPOCH_ROWS, keys)))
        writer.commit(EpochEdit(acks, sources=(), batch_id=number, epoch_ms=0))
    writer.close("filled")


def _epoch(writer: StreamWriter, operator: Operator, engine: Engine, keys: range) -> tuple[ShardAck, ...]:
    shards = tuple(map(Shard, range(BEFORE)))
    file = FileId(writer.term, writer.next_epoch, Shard(0), 0)
    context = EpochContext(file.epoch, shards, BEFORE, None, engine.budget.soft_bytes)
    with open_state(writer.store, writer.manifest, shards, file, engine, operator.logged) as state:
        state.compact()
        for first in range(keys.start, keys.stop, _CHUNK_ROWS):
            k = np.arange(first, min(first + _CHUNK_ROWS, keys.stop), dtype=np.int64)
            at = pa.array(k % 10 * _HOUR_US).view(_ROWS.schema.field("at").type)
            rows = pa.Table.from_arrays([pa.array(k), pa.array(k * 0.5), at], schema=_ROWS.schema)
            source = operator.pipeline.inputs[0].schema
            operator.on_rows(0, k.view(np.uint64) * _SPREAD, rows.select(source.names), state, context)
            state.relieve()
        for _ in operator.finish(state, context):
            state.relieve()
        tables = state.flush()
    first_ack, *others = (ShardAck(shard, tables[shard]) for shard in shards)
    return (ShardAck(first_ack.shard, first_ack.tables, changes=state.log), *others)


class _Watch:
    """How much more the process holds at most, of what no file backs: mapped runs are the page cache's."""

    def __init__(self) -> None:
        self._before = self._most = _anonymous_bytes()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def ended(self) -> int:
        """Looks no more; the bytes."""
        self._over.set()
        self._thread.join()
        return self._most - self._before

    def _look(self) -> None:
        while not self._over.is_set():
            self._most = max(self._most, _anonymous_bytes())
            sleep(0.003)


def _anonymous_bytes() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))


if __name__ == "__main__":
    place, count = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 10_000_000
    streams: dict[str, Operator] = {"totals": totals(), "by_hour": by_hour()}
    for name, operator in streams.items():
        print(json.dumps(run(place, count, name, operator)), flush=True)
