"""What the tests that kill have in common: rows to feed, the right answer, and waiting for a thing to happen."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from dagster_ckpt import CheckpointStore, InvalidPipelineError

KEYS = 500
ROWS = 2_000


def until(what: str, happened: Callable[[], bool], seconds: float = 360.0) -> None:
    """Wait until `happened()`; a failed test with `what` in its message if it does not in time."""
    end_s = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < end_s, f"waited {seconds:.0f} s in vain: {what}"
        time.sleep(0.1)


@dataclass(frozen=True)
class Feed:
    """One stream's input, and its table as it should be."""

    place: Path
    name: str

    @property
    def folder(self) -> Path:
        return self.place / self.name

    @property
    def inside(self) -> bool:
        """Whether an epoch stands before the closed gate."""
        return (self.folder / "inside").exists()

    @property
    def files(self) -> int:
        return len(list((self.folder / "inbox").glob("*.parquet")))

    def drop(self, files: int) -> None:
        """Put in more files of random rows, each atomically."""
        inbox = self.folder / "inbox"
        inbox.mkdir(parents=True, exist_ok=True)
        for number in range(self.files, self.files + files):
            chance = np.random.default_rng([number, len(self.name)])
            rows = pa.table({"key": chance.integers(KEYS, size=ROWS), "value": chance.integers(-99, 99, size=ROWS)})
            pq.write_table(rows, self.folder / "next")
            (self.folder / "next").rename(inbox / f"{number:06d}.parquet")

    def close_gate(self) -> None:
        (self.folder / "gate").touch()

    def open_gate(self) -> None:
        (self.folder / "gate").unlink()

    def batch(self) -> pd.DataFrame:
        """What plain pandas makes of all files there are."""
        rows = pd.concat([pd.read_parquet(file) for file in sorted((self.folder / "inbox").glob("*.parquet"))])
        return (
            rows.groupby("key")
            .agg(rows=("value", "size"), total=("value", "sum"), greatest=("value", "max"))
            .reset_index()
        )

    def table(self) -> pd.DataFrame:
        """What the stream has committed."""
        table: pd.DataFrame = (
            CheckpointStore((self.place / "checkpoints").as_uri()).stream(self.name).read().to_pandas()
        )
        return table.sort_values("key", ignore_index=True)

    def rows(self) -> int:
        """How many input rows are in the stream's newest epoch."""
        try:
            history = CheckpointStore((self.place / "checkpoints").as_uri()).stream(self.name)
        except InvalidPipelineError:
            return 0  # nobody has opened it yet
        return history.manifest().statistics.total_rows_in

    def is_through(self) -> bool:
        return self.rows() == self.files * ROWS
