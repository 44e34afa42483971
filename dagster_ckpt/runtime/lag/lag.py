"""How far a stream is behind its sources: what waits there, and since when."""

import logging
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SourceLag:
    """What one source, or all of them together, has and the stream has not committed.

    A count is None where no source counts so: files and their bytes of a folder, rows of Kafka, epochs of an upstream.
    `since_ms` is the time, in ms since the Unix epoch, since when the oldest of it has been there; None where nothing
    waits.
    """

    files: int | None = None
    file_bytes: int | None = None
    rows: int | None = None
    epochs: int | None = None
    since_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Lag:
    """What waits in the sources of a stream, at `measured_ms` (ms since the Unix epoch)."""

    measured_ms: int
    waiting: SourceLag

    @property
    def is_caught_up(self) -> bool:
        """Whether all that the sources had was committed."""
        return self.waiting.since_ms is None

    def seconds(self, now_ms: int) -> float:
        """For how long the oldest of it has waited; 0 where nothing waits."""
        since_ms = self.waiting.since_ms
        return 0.0 if since_ms is None else max(0, now_ms - since_ms) / 1000


def together(lags: Iterable[SourceLag]) -> SourceLag:
    """The sum of the counts, and the oldest time."""
    each = tuple(lags)
    return SourceLag(
        files=_sum(lag.files for lag in each),
        file_bytes=_sum(lag.file_bytes for lag in each),
        rows=_sum(lag.rows for lag in each),
        epochs=_sum(lag.epochs for lag in each),
        since_ms=min((lag.since_ms for lag in each if lag.since_ms is not None), default=None),
    )


def _sum(counts: Iterable[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


_LOG = logging.getLogger(__name__)

_END_S_MAX = 5.0
_AGAIN_S = 2.0
"""How soon a failed measurement is tried again: Spark may not have begun to look at the sources."""


class LagGauge:
    """Calls `on_lag` with each measurement, the first at once; with None where the lag cannot be measured.

    Measures in a background thread that nothing waits for, since a large folder takes long to list.
    It never raises into the stream's work and never stops it.
    """

    def __init__(
        self, asset: str, measure: Callable[[], Lag], on_lag: Callable[[Lag | None], None], interval_ms: int
    ) -> None:
        self._asset = asset
        self._measure = measure
        self._on_lag = on_lag
        self._interval_s = interval_ms / 1000
        self._turn = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lag-gauge", daemon=True)

    def begin(self) -> None:
        self._thread.start()

    def measure(self) -> bool:
        """Measure now, in this thread. Returns whether that succeeded."""
        with self._turn:
            try:
                lag = self._measure()
            except Exception as error:  # noqa: BLE001  (figures only inform; the next measurement may succeed)
                _LOG.info("the lag of the stream is not known now. asset=%s, reason=%s", self._asset, error)
                lag = None
            if not self._ended.is_set():
                self._on_lag(lag)
        return lag is not None

    def end(self) -> None:
        """Measure no more. Waits up to 5 s for a measurement in progress; one that goes on is harmless."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join(_END_S_MAX)

    def _run(self) -> None:
        while not self._ended.is_set():
            measured = self.measure()
            self._ended.wait(self._interval_s if measured else min(self._interval_s, _AGAIN_S))
