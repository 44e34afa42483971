"""The rows that every side takes: Parquet files in one folder, one a trigger.

Columns: `k` long, `v` double, `w` long. Values of `v` are whole 1024ths: then sums are exact in whatever order they are
added, and results can be compared for equality.
"""

import os
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from benchmarks.plan import Spread

KEY = "k"
SCHEMA = "k long, v double, w long"
ARROW_SCHEMA = pa.schema([(KEY, pa.int64()), ("v", pa.float64()), ("w", pa.int64())])
COLUMNS = ["k", "rows", "total", "most"]
"""Of a result."""

Keys = npt.NDArray[np.int64]

_FIRST_FILE_S = 1_700_000_000


class Inbox:
    """A folder that files are put into. The same keys, spread, seed and calls put the same rows there."""

    def __init__(self, folder: Path, keys: int, spread: Spread, seed: int = 20_260_101) -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        self._keys = keys
        self._chance = np.random.default_rng(seed)
        self._files = 0
        self._upto = np.cumsum(1 / np.arange(1, keys + 1)) if spread is Spread.ZIPF else None

    def put_each_key(self, rows: int) -> int:
        """Every key once, `rows` a file; how many files that were."""
        starts = range(0, self._keys, rows)
        for start in starts:
            self._put(np.arange(start, min(start + rows, self._keys)))
        return len(starts)

    def put_some_keys(self, keys: int) -> None:
        """About so many of the keys once, evenly chosen, in one file."""
        self._put(np.arange(0, self._keys, max(1, self._keys // keys)))

    def put(self, files: int, rows: int) -> None:
        """Files of `rows` each, whose keys are drawn."""
        for _ in range(files):
            self._put(self._drawn(rows))

    def truth(self) -> pa.Table:
        """What a running count, sum and maximum over all files comes to: `COLUMNS`, of each key."""
        grouped = ds.dataset(self.folder).to_table().group_by("k")
        return grouped.aggregate([([], "count_all"), ("v", "sum"), ("w", "max")]).rename_columns(COLUMNS)

    def sums(self) -> pa.Table:
        """What a running count and the sum of `w` over all files come to: `k`, `rows`, `total`, of each key."""
        grouped = ds.dataset(self.folder).to_table(["k", "w"]).group_by("k")
        return grouped.aggregate([([], "count_all"), ("w", "sum")]).rename_columns(["k", "rows", "total"])

    def _drawn(self, rows: int) -> Keys:
        if self._upto is None:
            return self._chance.integers(0, self._keys, rows, dtype=np.int64)
        keys: Keys = np.searchsorted(self._upto, self._chance.random(rows) * self._upto[-1], side="right")
        return keys

    def _put(self, keys: Keys) -> None:
        rows = len(keys)
        table = pa.table(
            {
                "k": keys,
                "v": self._chance.integers(0, 1 << 20, rows) / 1024,
                "w": self._chance.integers(0, 1_000, rows),
            }
        )
        put_file(self.folder, self._files, table)
        self._files += 1


def file_of(folder: Path, number: int) -> Path:
    """Where the file of this number, from 0, lies in an inbox."""
    return folder / f"{number:05d}.parquet"


def put_file(folder: Path, number: int, rows: pa.Table) -> None:
    """Put it there. Spark takes files in the order of their times: that of their numbers."""
    path = file_of(folder, number)
    pq.write_table(rows, path)
    os.utime(path, (_FIRST_FILE_S + number,) * 2)
