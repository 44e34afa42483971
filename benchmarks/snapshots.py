"""Milliseconds of an aligned snapshot over streams that read each other.

    python -m benchmarks.snapshots [--streams 10] [--shards 8] [--retained 20] [--times 50]

A tree of streams on local disk, each with so many retained epochs: every one but the first reads one before it.
`level`: all have consumed the newest. `behind`: the last one of them lags by ten epochs, so all others go back.
"""

import argparse
import tempfile
from dataclasses import dataclass
from time import perf_counter, process_time

import numpy as np
import pyarrow as pa

from dagster_ckpt import CheckpointStore, Snapshot
from dagster_ckpt.clock import SystemClock
from dagster_ckpt.ids import Shard
from dagster_ckpt.operators import AppendOnly
from dagster_ckpt.protocol.ack import ShardAck
from dagster_ckpt.protocol.epochs.upstream import FORMAT, UpstreamPosition
from dagster_ckpt.protocol.lease import LeaseHolder
from dagster_ckpt.protocol.manifest.manifest import InputSpec, Owner, SourceIdentity, SourcePosition
from dagster_ckpt.protocol.object_names import folder_of
from dagster_ckpt.protocol.transitions.edits import EpochEdit
from dagster_ckpt.storage.leases.process_identity import this_process
from dagster_ckpt.storage.stores.address import open_store
from dagster_ckpt.storage.stores.folder import folder_store
from dagster_ckpt.storage.writer.opening import Opening
from dagster_ckpt.storage.writer.stream_writer import StreamWriter, open_stream

_SCHEMA = pa.schema([("key", pa.int64()), ("value", pa.int64())])
_LAG = 10


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--streams", type=int, default=10)
    parser.add_argument("--shards", type=int, default=8)
    parser.add_argument("--retained", type=int, default=20)
    parser.add_argument("--times", type=int, default=50)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        streams = [_Made(f"file://{folder}", "s0", None, options.shards, options.retained)]
        while len(streams) < options.streams:
            above = streams[(len(streams) - 1) // 2]
            streams.append(_Made(f"file://{folder}", f"s{len(streams)}", above, options.shards, options.retained))
        for _ in range(options.retained):
            for stream in streams:
                stream.commit()
        _show("level", f"file://{folder}", [stream.name for stream in streams], options.times)
        for _ in range(_LAG):
            for stream in streams[:-1]:
                stream.commit()
        _show("behind", f"file://{folder}", [stream.name for stream in streams], options.times)
        for stream in streams:
            stream.writer.close("done")


@dataclass
class _Made:
    url: str
    name: str
    above: "_Made | None"
    shards: int
    retained: int

    def __post_init__(self) -> None:
        sources = () if self.above is None else (SourceIdentity(FORMAT, self.above.name, (("read", "table"),)),)
        opening = Opening(
            stream=self.name,
            owner=Owner("benchmark", self.name),
            pipeline=AppendOnly.build(InputSpec(sources, _SCHEMA)).pipeline,
            shards=self.shards,
            holder=LeaseHolder("benchmark", "benchmark", this_process()),
            root_run="benchmark",
            retained=self.retained,
        )
        store = folder_store(open_store(self.url), folder_of((self.name,)))
        self.writer: StreamWriter = open_stream(store, opening, SystemClock())

    def commit(self) -> None:
        """One more epoch, without rows; it has consumed what the one above has."""
        manifest = self.writer.manifest
        positions: tuple[SourcePosition, ...] = ()
        if self.above is not None:
            [input_spec] = manifest.pipeline.inputs
            [source] = input_spec.sources
            shown = self.above.writer.manifest
            at = UpstreamPosition(shown.uuid, shown.epoch).encode()
            before = manifest.sources[0].current if manifest.sources else None
            positions = (SourcePosition(source, at, before),)
        acks = tuple(ShardAck(Shard(shard)) for shard in range(manifest.shards))
        batch = 0 if manifest.batch_id is None else manifest.batch_id + 1
        self.writer.commit(EpochEdit(acks, positions, batch_id=batch, epoch_ms=0))


def _show(what: str, url: str, names: list[str], times: int) -> None:
    store = CheckpointStore(url)
    taken = [_timed(store, names) for _ in range(times)]
    wall, cpu = np.array([seconds for _, seconds in taken]).T * 1e3
    p50, p95 = np.percentile(wall, [50, 95])
    back = sum(not taken[-1][0].info(name).current for name in names)
    print(
        f"{what:8} {len(names)} streams, {back} of them at an older epoch: "
        f"p50 {p50:5.1f} ms   p95 {p95:5.1f} ms   CPU {np.median(cpu):5.1f} ms   of {times}"
    )


def _timed(store: CheckpointStore, names: list[str]) -> tuple[Snapshot, tuple[float, float]]:
    wall, cpu = perf_counter(), process_time()
    snapshot = store.snapshot(names, consistency="aligned")
    return snapshot, (perf_counter() - wall, process_time() - cpu)


if __name__ == "__main__":
    main()
