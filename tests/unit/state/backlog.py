"""A backlog 20 times the memory limit goes through a task in one epoch; prints what the process held at most.

python -m tests.unit.state.backlog <folder> <limit in MiB> <bytes of a row's text, at least 1>
"""

import json
import sys
import threading
from pathlib import Path

import numpy as np
import pyarrow as pa

from dagster_ckpt.ids import Epoch, Shard, Term
from dagster_ckpt.protocol.manifest.manifest import StateTableSpec
from dagster_ckpt.protocol.object_names import FileId
from dagster_ckpt.state.engine import Engine
from dagster_ckpt.state.memory_budget import MemoryBudget
from dagster_ckpt.state.task_state import open_state
from dagster_ckpt.storage.stores.local import LocalObjectStore
from tests.unit.state.epochs import empty_manifest
from tests.worlds.clock import StillClock

SPEC = StateTableSpec("groups", pa.schema([("k", pa.int64()), ("text", pa.string())]), ("k",))


def anonymous_bytes() -> int:
    """What the process holds that no file backs: mapped runs are the page cache's."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))


class Watch(threading.Thread):
    """Looks every few milliseconds."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.most = 0
        self.done = threading.Event()

    def run(self) -> None:
        while not self.done.wait(0.003):
            self.most = max(self.most, anonymous_bytes())


def chunk(number: int, rows: int, width: int) -> tuple[np.typing.NDArray[np.uint64], pa.Table]:
    """Half of the keys come again in the next chunk, so that there is something to look up and to merge."""
    keys = np.arange(number * rows // 2, number * rows // 2 + rows, dtype=np.int64)
    hashes = keys.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    offsets = pa.py_buffer(np.arange(0, (rows + 1) * width, width, dtype=np.int32))
    text = pa.StringArray.from_buffers(rows, offsets, pa.py_buffer(np.full(rows * width, 120, dtype=np.uint8)))
    return hashes, pa.Table.from_arrays([pa.array(keys), text], schema=SPEC.schema)


def main(folder: str, limit_mib: str, width: str) -> None:
    limit = int(limit_mib) << 20
    store = LocalObjectStore(Path(folder), StillClock().unique)
    shards = [Shard(0), Shard(1)]
    manifest = empty_manifest(SPEC, shards=2)

    def epoch(backlog: int, attempt: int) -> dict[str, int]:
        engine = Engine(StillClock(), budget=MemoryBudget(limit))
        rows = engine.budget.chunk_bytes // (int(width) + 16)
        file = FileId(Term(1), Epoch(2), Shard(0), attempt)
        with open_state(store, manifest, shards, file, engine, logged="groups") as state:
            state.compact()
            for number in range(backlog // engine.budget.chunk_bytes):
                hashes, table = chunk(number, rows, int(width))
                state.table("groups").get(hashes, table.select(["k"]))
                state.table("groups").put(hashes, table)
                state.relieve()
            touched = sum(len(piece.hashes) for piece in state.table("groups").touched_keys())
            lists = state.flush()
        runs = {run.path for tables in lists.values() for run in tables[0].runs}
        return {"touched": touched, "runs": len(runs), "state_rows": state.metrics.state_rows}

    epoch(limit // 16, attempt=0)  # loads what is loaded late
    before = anonymous_bytes()
    watch = Watch()
    watch.start()
    result = epoch(20 * limit, attempt=1)
    watch.done.set()
    watch.join()
    sys.stdout.write(json.dumps({"before": before, "most": watch.most, **result}))


if __name__ == "__main__":
    main(*sys.argv[1:])
