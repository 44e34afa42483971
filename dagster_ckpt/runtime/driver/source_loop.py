"""Micro-batches without a streaming query: the sources are asked in a thread of this process."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JJavaError
from pyspark import InheritableThread
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession

from dagster_ckpt.clock import Clock
from dagster_ckpt.runtime.driver.batch_loop import BatchLoop
from dagster_ckpt.runtime.lag.source_lags import QueryView
from dagster_ckpt.runtime.micro_batch.source_offsets import SourceOffsets
from dagster_ckpt.runtime.spark.session import as_active, ping

_PAUSE_MS = 10
"""The least time between two looks of which the first found nothing, as Spark has it."""
_STOP_S_MAX = 30.0


class SourceLoop(BatchLoop):
    """Asks the sources every `interval_ms`, and runs `work` for each micro-batch; None: until there is nothing new.

    A look that takes longer than the interval is followed by the next one at once.
    """

    def __init__(
        self,
        session: SparkSession,
        sources: SourceOffsets,
        work: Callable[[int], None],
        interval_ms: int | None,
        clock: Clock,
    ) -> None:
        super().__init__()
        self._session = session
        self._sources = sources
        self._work = work
        self._interval_ms = interval_ms
        self._clock = clock
        self._done = False
        self._stopping = threading.Event()
        self._thread = InheritableThread(target=self._run, name="micro-batches", daemon=True)

    def start(self) -> None:
        """Start it."""
        self._thread.start()

    def view(self) -> QueryView:
        return QueryView(self._sources.streams, progress=None, finds_data=False)

    def ping(self) -> None:
        ping(self._session)

    def is_at_end_of_input(self) -> bool:
        return self._done

    def close(self, timeout_s: float) -> bool:
        self._stopping.set()
        return super().close(timeout_s)

    def stop(self) -> None:
        self._closed = True
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join(_STOP_S_MAX)

    def _run(self) -> None:
        try:
            self._session.sparkContext.setInterruptOnCancel(True)  # as in the thread of a query
            with as_active(self._session):
                with _as_sparks_query_says():
                    self._sources.begin(until_now=self._interval_ms is None)
                while not self._closed and not self._done:
                    began_ms = self._clock.monotonic_ms()
                    found = self._look()
                    if not found and self._interval_ms is None:
                        self._done = not self._closed
                    else:
                        left_ms = (self._interval_ms or 0) - (self._clock.monotonic_ms() - began_ms)
                        self._stopping.wait(max(0 if found else _PAUSE_MS, left_ms) / 1000)
        except BaseException as error:  # noqa: BLE001  (raised again in the thread that waits)
            self._failure = error
            self._closed = True
        finally:
            self._ended.set()

    def _look(self) -> bool:
        """Whether there was something new, which is worked then."""
        with _as_sparks_query_says():
            batch_id = self._sources.next_batch()
        if batch_id is not None:
            with self._at_work:
                if not self._closed:
                    self._work(batch_id)
        return batch_id is not None


@contextmanager
def _as_sparks_query_says() -> Iterator[None]:
    """Within it errors of Spark's sources are those of a query: an `AnalysisException` would be one of its plan."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        raise StreamingQueryException(str(error)) from error
