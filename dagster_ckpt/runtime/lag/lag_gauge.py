"""Measures a stream's lag at intervals, in a background thread that nothing waits for: a large folder takes long."""

import logging
import threading
from collections.abc import Callable

from dagster_ckpt.runtime.lag.lag import Lag

_LOG = logging.getLogger(__name__)

_END_S_MAX = 5.0
_AGAIN_S = 2.0
"""How soon a failed measurement is tried again: Spark may not have begun to look at the sources."""


class LagGauge:
    """Calls `on_lag` with each measurement, the first at once; with None where the lag cannot be measured.

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
