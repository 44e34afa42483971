"""Rows of tables from which rows expire are not counted but estimated."""

import random

import numpy as np
import pyarrow as pa

from dagster_ckpt.protocol.manifest.manifest import StateTableSpec
from dagster_ckpt.storage.stores.memory import MemoryObjectStore
from tests.unit.state.epochs import Epochs

TIME = pa.timestamp("us")
SEEN = StateTableSpec("seen", pa.schema([("k", pa.int64()), ("at", TIME)]), ("k",), time="at")
SHARDS = 8


def some_tasks(chance: random.Random) -> list[range]:
    cuts = sorted(chance.sample(range(1, SHARDS), chance.choice([0, 1, 2, 3, 7])))
    return [range(first, end) for first, end in zip([0, *cuts], [*cuts, SHARDS], strict=True)]


def test_it_is_the_same_however_tasks_share_the_shards() -> None:
    for seed in range(20):
        chance = random.Random(seed)
        epochs = Epochs(MemoryObjectStore(f"layouts {seed}"), (SEEN,), shards=SHARDS)
        for _ in range(5):
            tasks = []
            for shards in some_tasks(chance):
                task = epochs.begin(shards)
                if chance.random() < 0.5:
                    keys = sorted(shards[0] * 2**61 + chance.randrange(len(shards) * 2**61) for _ in range(3))
                    hashes = np.array(keys, dtype=np.uint64)
                    rows = pa.table({"k": hashes.view(np.int64), "at": pa.array([1, 1, 1], TIME)}, schema=SEEN.schema)
                    task.table("seen").put(hashes, rows)
                tasks.append(task)
            epochs.commit(*tasks)
        tasks = [epochs.begin(shards) for shards in some_tasks(chance)]
        for task in tasks:
            task.table("seen").expire(2)
        manifest = epochs.commit(*tasks)
        assert not any(manifest.runs["seen"])
        assert manifest.statistics.state_rows == 0
