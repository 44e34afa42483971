"""What hands over micro-batches, one after another, in a thread of its own, and how it ends; the caller's thread waits.

Spark's streaming query does (`streaming_query`), or we ask the sources ourselves (`source_loop`).
"""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable

from dagster_ckpt.runtime.lag.source_lags import QueryView


class BatchLoop(ABC):
    """Works micro-batches until one fails, the input ends or `stop` is called."""

    def __init__(self) -> None:
        self._at_work = threading.Lock()
        self._closed = False
        self._ended = threading.Event()
        self._failure: BaseException | None = None

    @abstractmethod
    def view(self) -> QueryView:
        """What there is to see of the sources. Raises `LookupError` before the first look, and Spark's errors."""

    @abstractmethod
    def ping(self) -> None:
        """Return once Spark answers, or is known to be gone."""

    @abstractmethod
    def is_at_end_of_input(self) -> bool:
        """Whether it ended because it has processed all input. Call it once it has ended."""

    @abstractmethod
    def stop(self) -> None:
        """End, and drop what was about to be done. Call `close` first, or an epoch in progress is cut off."""

    def wait(self, timeout_s: float) -> bool:
        """Whether it has ended, or will run no further batch; waits up to `timeout_s`."""
        return self._ended.wait(timeout_s)

    def run_if_idle(self, act: Callable[[], None]) -> None:
        """Call `act` while no batch can run; do nothing while one runs."""
        if self._at_work.acquire(blocking=False):
            try:
                act()
            finally:
                self._at_work.release()

    def start_if_idle(self, act: Callable[[], None]) -> None:
        """Call `act` in a new thread while no batch can run; do nothing while one runs.

        It drains, aborts and fails as a batch does.
        """
        if not self._closed and self._at_work.acquire(blocking=False):
            threading.Thread(target=self._act, args=(act,), name="between-batches", daemon=True).start()

    def is_idle(self, timeout_s: float) -> bool:
        """Whether nothing is in progress; waits up to `timeout_s`."""
        if self._at_work.acquire(timeout=timeout_s):
            self._at_work.release()
            return True
        return False

    def close(self, timeout_s: float) -> bool:
        """Start no further epoch; returns whether the one in progress has ended, after up to `timeout_s`."""
        self._closed = True
        return self.is_idle(timeout_s)

    def raise_failure(self) -> None:
        """Raise the failure that ended it, if any: as it was raised, or else Spark's."""
        if self._failure is not None:
            raise self._failure

    def _act(self, act: Callable[[], None]) -> None:
        try:
            act()
        except BaseException as error:  # noqa: BLE001  (raised again in the thread that waits)
            self._failure = error
            self._closed = True
            self._ended.set()
        finally:
            self._at_work.release()
