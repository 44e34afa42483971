"""The rows of a race of steps: Parquet files in one folder, one a trigger, each a span of event time further.

Columns: `k` long, `t` timestamp, `v` long; of a right input `rk`, `rt`, `rv`. Times are even milliseconds, so that
nothing lies exactly on the end of a session whose gap is odd.
"""

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.inputs import file_of, put_file
from benchmarks.plan import StepRace

COLUMNS = ("k", "t", "v")
TIME = pa.timestamp("us", tz="UTC")
FILE = "file"
"""In `frame()` and `truth`: which file a row came with."""

_FIRST_MS = 1_700_000_000_000


class StepInbox:
    """A folder that files are put into. The same race, seed and calls put the same rows there.

    A row's time is in its file's span or up to half the watermark's delay before it: out of order, and never late.
    """

    def __init__(self, folder: Path, race: StepRace, seed: int, prefix: str = "") -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        self.columns = [f"{prefix}{column}" for column in COLUMNS]
        self._race = race
        self._chance = np.random.default_rng(seed)
        self._files = 0

    @property
    def schema(self) -> str:
        """As Spark writes it."""
        key, time, value = self.columns
        return f"{key} long, {time} timestamp, {value} long"

    def put(self, files: int) -> None:
        """The next files, of the race's rows each."""
        for _ in range(files):
            race, first = self._race, self._files * self._race.moved
            span, early = race.span_s * 500, race.delay_s * 250  # in steps of two milliseconds
            at = self._files * span
            times = _FIRST_MS + 2 * self._chance.integers(at - early, at + span, race.rows)
            keys = self._chance.integers(first, first + race.keys, race.rows)
            self.put_rows(pd.DataFrame({"k": keys, "t": times, "v": np.arange(race.rows) + self._files * race.rows}))

    def put_rows(self, rows: pd.DataFrame) -> None:
        """One file of these rows: `k`, `t` in milliseconds, `v`."""
        times = pa.array(rows["t"].to_numpy() * 1_000).cast(TIME)
        table = pa.table([pa.array(rows["k"]), times, pa.array(rows["v"])], names=self.columns)
        put_file(self.folder, self._files, table)
        self._files += 1

    def frame(self) -> pd.DataFrame:
        """All rows so far: `COLUMNS`, times in milliseconds, and `FILE`."""
        frames = []
        for number in range(self._files):
            key, time, value = pq.read_table(file_of(self.folder, number)).columns
            times = time.cast(pa.int64()).to_numpy() // 1_000
            frames.append(pd.DataFrame({"k": key.to_numpy(), "t": times, "v": value.to_numpy(), FILE: number}))
        return pd.concat(frames, ignore_index=True)
