"""Seconds of a first epoch whose state is on S3 and nowhere else: 20 ms a request, an empty cache, no Spark.

    scripts/test_s3.sh        # once: it builds the server
    python -m benchmarks.cold_start [--keys 10000000] [--rows 10000] [--latency-ms 20] [--shards 8]

The state is that of count and sum by one key, put in as epochs of 500,000 rows in any order, in versitygw on this
machine. Then, as a process would that knows nothing of the stream: open it (a new term), work an epoch of `--rows`
rows whose keys are drawn evenly from all keys, in one task that has all shards, and commit it. Each request begins
after `--latency-ms`; the network's throughput is this machine's. Starting Python, Spark and Dagster is not in it.
Prints seconds, requests by verb and bytes of each part, and of a second and third epoch, which find the cache warm.
"""

import argparse
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import TypeVar

import numpy as np
import pyarrow as pa

from benchmarks.filling import epoch_acks, fill_stream, opening_of
from dagster_ckpt.clock import SystemClock
from dagster_ckpt.lsm.key_hash import key_hashes
from dagster_ckpt.operators import RunningAggregate, agg
from dagster_ckpt.protocol.manifest.manifest import InputSpec
from dagster_ckpt.protocol.transitions.edits import EpochEdit
from dagster_ckpt.state.engine import Engine, OpenRuns
from dagster_ckpt.state.remote.run_cache import RunCache
from dagster_ckpt.storage.stores.folder import folder_store
from dagster_ckpt.storage.stores.object_store import ObjectStore
from dagster_ckpt.storage.writer.stream_writer import StreamWriter, open_stream
from tests.worlds.s3_server import running

T = TypeVar("T")

NAME = "sums"
INPUT = pa.schema([("key", pa.int64()), ("value", pa.int64())])
_FILL_ROWS = 500_000
_CACHE_BYTES = 10 * 1024**3


class DistantStore:
    """A store each of whose requests begins after a while; they are counted, and so are the bytes."""

    def __init__(self, inner: ObjectStore, latency_s: float) -> None:
        self._inner = inner
        self._latency_s = latency_s
        self._lock = threading.Lock()
        self.requests: Counter[str] = Counter()
        self.bytes = 0

    @property
    def url(self) -> str:
        return self._inner.url

    def put_if_absent(self, name: str, data: bytes | memoryview) -> bool:
        return self._asked("put_if_absent", len(data), lambda: self._inner.put_if_absent(name, data))

    def put(self, name: str, data: bytes | memoryview) -> None:
        self._asked("put", len(data), lambda: self._inner.put(name, data))

    def get(self, name: str) -> bytes:
        return self._read("get", lambda: self._inner.get(name))

    def get_range(self, name: str, offset: int, length: int) -> bytes:
        return self._read("get_range", lambda: self._inner.get_range(name, offset, length))

    def exists(self, name: str) -> bool:
        return self._asked("exists", 0, lambda: self._inner.exists(name))

    def size(self, name: str) -> int:
        return self._asked("size", 0, lambda: self._inner.size(name))

    def modified_ms(self, name: str) -> int:
        return self._asked("modified_ms", 0, lambda: self._inner.modified_ms(name))

    def delete(self, name: str) -> None:
        self._asked("delete", 0, lambda: self._inner.delete(name))

    def list(self, prefix: str, after: str = "") -> Iterator[str]:
        yield from self._asked("list", 0, lambda: [*self._inner.list(prefix, after)])

    def folders(self, prefix: str) -> Iterator[str]:
        yield from self._asked("folders", 0, lambda: [*self._inner.folders(prefix)])

    def discard_leftovers(self, prefix: str, before_ms: int) -> int:
        return self._inner.discard_leftovers(prefix, before_ms)

    def settle(self, folder: str) -> None:
        self._inner.settle(folder)

    def local_path(self, name: str) -> Path | None:
        return self._inner.local_path(name)

    def _read(self, verb: str, ask: Callable[[], bytes]) -> bytes:
        found = self._asked(verb, 0, ask)
        with self._lock:
            self.bytes += len(found)
        return found

    def _asked(self, verb: str, size: int, ask: Callable[[], T]) -> T:
        with self._lock:
            self.requests[verb] += 1
            self.bytes += size
        time.sleep(self._latency_s)
        return ask()

    @contextmanager
    def part(self, what: str) -> Iterator[None]:
        """Print what is done within, once it is done."""
        with self._lock:
            self.requests.clear()
            self.bytes = 0
        began = perf_counter()
        yield
        requests = ", ".join(f"{count} {verb}" for verb, count in self.requests.most_common())
        print(f"{what:16} {perf_counter() - began:7.2f} s {self.bytes / 1e6:9.1f} MB   {requests}", flush=True)


def main(keys: int, rows: int, latency_ms: float, shards: int) -> None:
    operator = RunningAggregate.build(("key",), {"rows": agg.count(), "total": agg.sum("value")}, InputSpec((), INPUT))
    chance = np.random.default_rng(1)
    with tempfile.TemporaryDirectory() as scratch, running(Path(scratch)) as server:
        address = server.empty()
        began, every = perf_counter(), chance.permutation(keys)
        parts = (every[first : first + _FILL_ROWS] for first in range(0, keys, _FILL_ROWS))
        epochs = ([_table(part)] for part in parts)
        fill_stream(address, NAME, operator, shards, epochs, _hashes, retained=2)
        print(f"{keys:,} keys put in: {perf_counter() - began:.0f} s", flush=True)

        distant = DistantStore(address.open(), latency_ms / 1000)
        cache = RunCache(Path(scratch) / "cache", _CACHE_BYTES)
        engine = Engine(SystemClock(), runs=OpenRuns(cache=cache))
        cold = perf_counter()
        with distant.part("open"):
            opening = opening_of(NAME, operator, shards, retained=2)
            writer = open_stream(folder_store(distant, NAME), opening, SystemClock())
        for number, name in enumerate(("first epoch", "second epoch", "third epoch")):
            with distant.part(name):
                _epoch(writer, operator, engine, _table(chance.integers(0, keys, rows)))
            if number == 0:
                print(
                    f"cold start: {perf_counter() - cold:.2f} s to the first commit, "
                    f"state of {writer.manifest.statistics.state_bytes / 1e6:,.0f} MB",
                    flush=True,
                )
        writer.close("done")


def _epoch(writer: StreamWriter, operator: RunningAggregate, engine: Engine, rows: pa.Table) -> None:
    acks = epoch_acks(writer, operator, engine, [(_hashes(rows), rows)])
    writer.commit(EpochEdit(acks, sources=(), batch_id=(writer.manifest.batch_id or 0) + 1, epoch_ms=0))


def _table(keys: "np.ndarray[tuple[int], np.dtype[np.int64]]") -> pa.Table:
    return pa.table({"key": keys, "value": keys % 1_000}, schema=INPUT)


def _hashes(rows: pa.Table) -> "np.ndarray[tuple[int], np.dtype[np.uint64]]":
    return key_hashes(rows.select(["key"]))


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--keys", type=int, default=10_000_000)
    arguments.add_argument("--rows", type=int, default=10_000)
    arguments.add_argument("--latency-ms", type=float, default=20)
    arguments.add_argument("--shards", type=int, default=8)
    given = arguments.parse_args()
    main(given.keys, given.rows, given.latency_ms, given.shards)
