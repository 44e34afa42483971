"""What follows what in a trigger, on the clock: Spark's own phases, and ours within its callback."""

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from statistics import median
from time import perf_counter
from typing import Any
from unittest.mock import patch

from pyspark.sql import SparkSession

from benchmarks.report.page import table_of
from dagster_ckpt.runtime.driver.streaming_query import EpochQuery
from dagster_ckpt.runtime.micro_batch.epoch_driver import EpochDriver

Milliseconds = dict[str, list[float]]
_OF_SPARK: Mapping[str, Sequence[str]] = {
    "new files are looked for": ("latestOffset", "getBatch"),
    "Spark's scratch checkpoint": ("walCommit", "commitOffsets", "commitBatch"),
    "Spark plans the micro-batch": ("queryPlanning",),
}
"""Phases by the names that Spark gives their parts."""
_OF_OURS = {"the tasks, in Spark's job": "_acks", "the manifest is committed": "_made"}
"""Phases by the method of `EpochDriver` that is one."""
_CALLBACK, _REST, TRIGGER = "the rest of the callback", "between all these", "a trigger"
PHASES = (*_OF_SPARK, *_OF_OURS, _CALLBACK, _REST, TRIGGER)


class Phases:
    """The phases of the triggers in the block of `watched`."""

    def __init__(self, session: SparkSession) -> None:
        self._ours: Milliseconds = defaultdict(list)
        self._sparks: Milliseconds = defaultdict(list)
        session.conf.set("spark.sql.streaming.numRecentProgressUpdates", "100000")

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Watch the streams that run in the block."""
        stop = EpochQuery.stop

        def noted(query: Any) -> None:
            for each in query._query._jsq.recentProgress():  # noqa: SLF001  (a listener in Python would take its time)
                parts = json.loads(str(each.json()))["durationMs"]
                if "addBatch" in parts:
                    for part, ms in parts.items():
                        self._sparks[part].append(float(ms))
            stop(query)

        with (
            self._timed("work"),
            self._timed("_acks"),
            self._timed("_made"),
            patch.object(EpochQuery, "stop", noted),
        ):
            yield

    @contextmanager
    def _timed(self, method: str) -> Iterator[None]:
        plain: Callable[..., Any] = getattr(EpochDriver, method)

        @wraps(plain)
        def timed(*given: Any, **named: Any) -> Any:
            began = perf_counter()
            try:
                return plain(*given, **named)
            finally:
                self._ours[method].append((perf_counter() - began) * 1_000)

        with patch.object(EpochDriver, method, timed):
            yield

    def medians(self, seconds: Sequence[float]) -> dict[str, float]:
        """Milliseconds of each phase; `seconds` are those of the triggers."""
        found = {name: sum(map(self._spark, parts)) for name, parts in _OF_SPARK.items()}
        found |= {name: median(self._ours[method]) for name, method in _OF_OURS.items()}
        found[_CALLBACK] = max(0.0, median(self._ours["work"]) - sum(found[name] for name in _OF_OURS))
        trigger = median(seconds) * 1_000
        found[_REST] = trigger - sum(found.values())
        found[TRIGGER] = trigger
        return found

    def _spark(self, part: str) -> float:
        return median(self._sparks[part]) if part in self._sparks else 0.0


def table(measured: Mapping[int, Mapping[str, float]]) -> str:
    """The phases, with a column for each number of rows."""
    head = ["", *(f"{rows:,} rows" for rows in measured)]
    return table_of(head, [[name, *(f"{found[name]:.0f} ms" for found in measured.values())] for name in PHASES])
