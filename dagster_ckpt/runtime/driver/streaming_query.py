"""Micro-batches of a streaming query of Spark's, whose thread hands them over."""

import json
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from dagster_ckpt.runtime.catalyst.physical_plan import execution_of
from dagster_ckpt.runtime.catalyst.values import Java
from dagster_ckpt.runtime.driver.batch_loop import BatchLoop
from dagster_ckpt.runtime.lag.source_lags import QueryView

Work = Callable[[DataFrame, int], None]

JVM_IS_GONE = (Py4JError, ConnectionError)
"""What a call into a dead JVM raises. `Py4JError` has other causes too."""

_POLL_S = 0.005
_STOP_S_MAX = 30.0


class EpochQuery(BatchLoop):
    """Runs `work` for each micro-batch until it fails, the input ends or `stop` is called.

    A failed micro-batch neither returns to Spark nor raises there. If it returned, Spark would commit its rows to the
    source, and some sources forget such rows; if it raised, pages of stack traces would hide the reason. It waits until
    the query is stopped, which drops it.
    """

    def __init__(self, work: Work) -> None:
        super().__init__()
        self._work = work
        self._worked = False
        self._dropped = threading.Event()
        self._query: StreamingQuery | None = None

    def start(self, writer: DataStreamWriter) -> None:
        """Start the query. Raises Spark's errors about its plan."""
        self._query = writer.foreachBatch(_without_owner(self._hand_over)).start()
        threading.Thread(target=self._await_end, args=(self._query,), name="query-end", daemon=True).start()

    def view(self) -> QueryView:
        """Spark's own view of the query, once it is started. Raises Spark's error where it does not answer."""
        query: Any = self._query
        progress = query._jsq.lastProgress()  # noqa: SLF001  (PySpark's copy lacks some sources' offsets)
        streams = query._jsq.streamingQuery().sources()  # noqa: SLF001  (Spark exposes it nowhere else)
        return QueryView(
            streams=tuple(streams.apply(line) for line in range(streams.size())),
            progress=None if progress is None else json.loads(str(progress.json())),
            finds_data=bool(query.status["isDataAvailable"]),
        )

    def execution_of_batch(self, frame: DataFrame) -> Java:
        """The plans that read the rows of `frame`, the micro-batch in progress, from the source.

        Spark compiles them together with what is done with the rows. `frame` itself is what comes out of them, row by
        row. Its own plans are returned where the others are not known yet: before `start` has returned.
        """
        query: Any = self._query
        if query is None:
            return execution_of(frame)
        return Java(query._jsq.streamingQuery().lastExecution())  # noqa: SLF001  (as above)

    def ping(self) -> None:
        """Return once Spark answers for the query, or is known to be gone."""
        if self._query is not None:
            _is_active(self._query)

    def stop(self) -> None:
        """Stop the query and drop what it was about to do. Call `close` first, or an epoch in progress is cut off."""
        self._closed = True
        query = self._query
        if query is None:
            return
        # stop() returns only after foreachBatch, which in turn waits until stop() has begun.
        stopping = threading.Thread(target=_stop, args=(query,), name="query-stop", daemon=True)
        stopping.start()
        while stopping.is_alive() and _is_active(query):
            stopping.join(_POLL_S)
        self._dropped.set()
        stopping.join(_STOP_S_MAX)

    def is_at_end_of_input(self) -> bool:
        """Whether the query ended because it has processed all input. Call it once the query has ended."""
        # A query that was stopped from outside ends in the same way, but not after it looked for new rows and found
        # none. From a source without "available now" Spark runs just one batch, and does not look again.
        query: Any = self._query
        execution = query._jsq.streamingQuery()  # noqa: SLF001  (Spark exposes it nowhere else)
        single = execution.triggerExecutor().getClass().getSimpleName() == "SingleBatchExecutor"
        return bool(execution.noNewData()) or (single and self._worked)

    def _hand_over(self, frame: DataFrame, batch_id: int) -> None:
        with self._at_work:
            if not self._closed:
                try:
                    self._work(frame, batch_id)
                    self._worked = True
                    return
                except BaseException as error:  # noqa: BLE001  (raised again in the thread that waits)
                    self._failure = error
                    self._closed = True
        self._ended.set()
        self._dropped.wait()

    def _await_end(self, query: StreamingQuery) -> None:
        try:
            query.awaitTermination()
        except (PySparkException, *JVM_IS_GONE) as error:
            if self._failure is None:
                self._failure = error
        finally:
            self._ended.set()


def did_not_start(error: BaseException) -> bool:
    """Whether a query ended because its Python process was not up in time: Spark waits 10 s for it.

    On a busy host it takes longer; nothing is wrong with the stream then.
    """
    return isinstance(error, PySparkException) and "Python worker failed to connect back" in str(error)


def _without_owner(work: Work) -> Work:
    """`work`, without keeping the object that it is a method of.

    Python keeps what it has handed to the JVM until the JVM drops it. The JVM keeps it with the query, and the query
    until Python drops it: nothing of a query that has ended would ever be freed, in either of the two.
    """
    method = weakref.WeakMethod(work)

    def call(frame: DataFrame, batch_id: int) -> None:
        found = method()
        if found is None:
            raise RuntimeError(f"nothing waits for the query of micro-batch {batch_id} any more")
        found(frame, batch_id)

    return call


def _stop(query: StreamingQuery) -> None:
    with suppress(*JVM_IS_GONE):
        query.stop()


def _is_active(query: StreamingQuery) -> bool:
    try:
        return query.isActive
    except JVM_IS_GONE:
        return False
