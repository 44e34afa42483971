"""One task's epochs without Spark, as the state grows: what the engine itself takes."""

import re
from pathlib import Path
from uuid import uuid4

import numpy as np
import pyarrow as pa

from benchmarks.disk import check_disk
from benchmarks.engine import AGGREGATES, Numbers, OneTask, Stopwatch, empty_stream, hashes_of
from benchmarks.plan import Alone
from benchmarks.progress import Tell
from benchmarks.retired import RetiredFiles
from dagster_ckpt.operators import RunningAggregate
from dagster_ckpt.operators.aggregates.aggregate import GROUPS
from dagster_ckpt.protocol.manifest.manifest import InputSpec
from dagster_ckpt.storage.stores.local import LocalObjectStore

_SCHEMA = pa.schema([("key", pa.int64()), ("value", pa.int64())])


def run_alone(alone: Alone, folder: Path, tell: Tell) -> dict[str, object]:
    """Seconds of each counted epoch and the rows it merged; the most memory that the process had.

    Raises RuntimeError where disk is short.
    """
    keys = alone.keys // alone.tasks
    check_disk(folder, keys)
    store = folder / "store"
    operator = RunningAggregate.build(("key",), AGGREGATES, InputSpec((), _SCHEMA))
    objects = LocalObjectStore(store / "alone", lambda: uuid4().hex)
    task = OneTask(objects, operator, empty_stream(operator, alone.shards))
    retired, chance = RetiredFiles(store), np.random.default_rng(1)

    def epoch(keys: Numbers, stopwatch: Stopwatch) -> None:
        values = chance.integers(0, 1_000, len(keys))
        task.epoch(hashes_of(keys), pa.table({"key": keys, "value": values}, schema=_SCHEMA), stopwatch)

    tell(f"{keys:,} keys are put in")
    for start in range(0, keys, alone.fill_rows):
        epoch(np.arange(start, min(start + alone.fill_rows, keys)), Stopwatch())
        retired.seen(task.manifest)
    tell(f"epochs of {alone.rows:,} rows at {keys:,} keys")
    stopwatch = Stopwatch()
    for _ in range(alone.warm + alone.counted):
        epoch(chance.integers(0, keys, alone.rows), stopwatch)
    bytes_ = {run.path: run.bytes for shard in task.manifest.runs[GROUPS] for run in shard}
    return {
        "peak_bytes": _peak_bytes(),
        "seconds": [round(wall / 1_000, 5) for wall, _ in stopwatch.parts["whole"][alone.warm :]],
        "merged_rows": task.merged_rows[-alone.counted :],
        "state_bytes": sum(bytes_.values()),
    }


def _peak_bytes() -> int:
    """The most memory that this process had. What `getrusage` says counts the process too that started it."""
    found = re.search(r"^VmHWM:\s+(\d+) kB$", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert found is not None, "Linux says it of each process"
    return int(found[1]) * 1024
