"""Another number of shards for a stream of ten million keys, by the manifest alone and with a timeline of as many rows.

python -m benchmarks.reshard <empty folder> [keys]
"""

import json
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter, sleep

import numpy as np
import pyarrow as pa

from benchmarks.filling import fill_stream
from dagster_ckpt import CheckpointStore
from dagster_ckpt.operators import Operator, RunningAggregate, agg
from dagster_ckpt.operators.shared.window_kinds import Tumbling
from dagster_ckpt.operators.windows.window_aggregate import WindowAggregate
from dagster_ckpt.protocol.manifest.manifest import InputSpec
from dagster_ckpt.storage.stores.address import StoreAddress

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
    source = operator.pipeline.inputs[0].schema
    starts = range(0, keys, _EPOCH_ROWS)
    epochs = (_rows(range(first, min(first + _EPOCH_ROWS, keys)), source.names) for first in starts)
    fill_stream(
        StoreAddress(folder.as_uri()),
        name,
        operator,
        BEFORE,
        epochs,
        lambda rows: rows["k"].to_numpy().view(np.uint64) * _SPREAD,
    )


def _rows(keys: range, names: list[str]) -> Iterator[pa.Table]:
    """These columns of a row for each key."""
    for first in range(keys.start, keys.stop, _CHUNK_ROWS):
        k = np.arange(first, min(first + _CHUNK_ROWS, keys.stop), dtype=np.int64)
        at = pa.array(k % 10 * _HOUR_US).view(_ROWS.schema.field("at").type)
        yield pa.Table.from_arrays([pa.array(k), pa.array(k * 0.5), at], schema=_ROWS.schema).select(names)


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
