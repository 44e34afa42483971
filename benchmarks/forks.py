"""Milliseconds of a fork, of a fork of a fork, and of a rollback.

    python -m benchmarks.forks [--keys 10000000] [--forks 30] [--shards 8] [--folder FOLDER]

A stream of so many keys, count, sum and max each, on local disk with fsync; then forks of its current epoch, forks of a
fork, and the stream goes back by an epoch, again and again. What these take does not depend on what the state holds,
only on how long its manifest is.
"""

import argparse
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import perf_counter, process_time

import numpy as np
import pyarrow as pa

from benchmarks.engine import AGGREGATES, hashes_of
from benchmarks.filling import fill_stream
from dagster_ckpt import CheckpointStore
from dagster_ckpt.operators import RunningAggregate
from dagster_ckpt.protocol.manifest.manifest import InputSpec
from dagster_ckpt.storage.stores.address import StoreAddress

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
    parts = (np.arange(start, min(start + _ROWS, keys)) for start in range(0, keys, _ROWS))
    epochs = ([pa.table({"key": part, "value": part % 1000}, schema=_SCHEMA)] for part in parts)
    fill_stream(StoreAddress(url), _NAME, operator, shards, epochs, lambda rows: hashes_of(rows["key"].to_numpy()))


if __name__ == "__main__":
    main()
