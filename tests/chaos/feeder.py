"""Rows that keep coming: a thread drops a file of them every so often, each in one atomic step."""

import threading
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.chaos.lanes import inbox_in

KEYS = 500
ROWS = 200
"""In each file."""


@dataclass
class Feeder:
    """Feeds the place while it is entered and not paused. Every row has an id of its own."""

    place: Path
    files_per_second: float = 2.0
    files: int = 0
    _flows: threading.Event = field(default_factory=threading.Event)
    _ended: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __enter__(self) -> Self:
        inbox_in(self.place).mkdir()
        self._thread = threading.Thread(target=self._run, name="feeder", daemon=True)
        self._thread.start()
        self._flows.set()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._flows.set()
        self._thread.join()

    @property
    def rows(self) -> int:
        """How many rows were dropped so far."""
        return self.files * ROWS

    @property
    def flows(self) -> bool:
        """Whether it is not paused."""
        return self._flows.is_set()

    def pause(self) -> None:
        """No file comes any more once this returns."""
        self._flows.clear()
        with self._lock:
            pass  # the one that was on its way is there

    def resume(self) -> None:
        self._flows.set()

    def _run(self) -> None:
        while not self._ended.wait(1 / self.files_per_second):
            self._flows.wait()
            with self._lock:
                if self._flows.is_set():
                    self._drop()

    def _drop(self) -> None:
        chance = np.random.default_rng(self.files)
        rows = pa.table(
            {
                "id": np.arange(self.rows, self.rows + ROWS),
                "key": chance.integers(KEYS, size=ROWS),
                "value": chance.integers(-99, 99, size=ROWS),
            }
        )
        # Beside the inbox, on the same disk: Spark lists the inbox at any moment and would read half a file.
        staging = self.place / "next.parquet"
        pq.write_table(rows, staging)
        staging.rename(inbox_in(self.place) / f"{self.files:06d}.parquet")
        self.files += 1
