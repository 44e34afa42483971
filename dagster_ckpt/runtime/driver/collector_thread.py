"""The writer collects its stream's garbage in a background thread that nothing waits for."""

import logging
import threading
from collections.abc import Callable

from dagster_ckpt.clock import Clock
from dagster_ckpt.errors import CheckpointError
from dagster_ckpt.ids import Term
from dagster_ckpt.protocol.object_names import COLLECTOR
from dagster_ckpt.storage.operations.collector import Collected, Collector
from dagster_ckpt.storage.stores.object_store import ObjectMissingError

_log = logging.getLogger(__name__)

_PASSES_PER_GRACE = 4
_PAUSE_MS_MIN = 10_000
_PAUSE_MS_MAX = 900_000
_END_S_MAX = 5.0
_CUT_OFF = (
    "streams that read this one are more than max_lag epochs behind: its change log is no longer kept for them, and "
    "they must be backfilled."
)
_GONE = (
    "streams that have read this one are not in the store, and its change log is kept for them: bring their folders "
    "back, or remove them with unsubscribe."
)


class CollectorThread:
    """Runs a collector pass at intervals, the first at once if none was made lately. Retries a failed pass.

    It never raises into the writer's work and never stops it.
    """

    def __init__(self, collector: Collector, clock: Clock, term: Callable[[], Term]) -> None:
        """`collector` is the stream's; `term` returns its writer's current term."""
        self._collector = collector
        grace_ms = collector.grace_ms
        self._pause_ms = min(max(grace_ms // _PASSES_PER_GRACE, _PAUSE_MS_MIN), _PAUSE_MS_MAX)
        self._term = term
        self._clock = clock
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="garbage-collector", daemon=True)

    def begin(self) -> None:
        self._thread.start()

    def end(self) -> None:
        """Start no further pass. Waits up to 5 s for one in progress; one that goes on, or dies, is harmless."""
        self._ended.set()
        self._thread.join(_END_S_MAX)

    def _run(self) -> None:
        pause_ms = self._until_due_ms()
        while not self._ended.wait(pause_ms / 1000):
            self._collect()
            pause_ms = self._pause_ms

    def _collect(self) -> None:
        try:
            collected = self._collector.collect(self._term())
        except Exception as error:  # noqa: BLE001  (the next pass may succeed, and the stream needs none)
            _log.warning(
                "garbage was not collected; the stream goes on, and a later pass tries again. store=%s, reason=%s",
                self._collector.chain.store.url,
                error,
            )
            return
        for message, subscribers in ((_CUT_OFF, collected.cut_off), (_GONE, collected.gone)):
            if subscribers:
                _log.warning("%s store=%s, subscribers=%s", message, self._collector.chain.store.url, [*subscribers])
        if collected != Collected():
            _log.info("garbage was collected. store=%s, removed=%s", self._collector.chain.store.url, collected)

    def _until_due_ms(self) -> int:
        """How long until the next pass is due, counted from the last one by any process. Only saves requests."""
        try:
            last_ms = self._collector.chain.store.modified_ms(COLLECTOR)
        except (ObjectMissingError, CheckpointError):
            return 0
        return min(max(0, last_ms + self._pause_ms - self._clock.now_ms()), self._pause_ms)
