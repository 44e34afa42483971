"""Threads that write and read while the task goes on working. A failed job fails no other."""

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotDoneError
from dataclasses import dataclass
from typing import Generic, TypeVar

from dagster_ckpt.errors import CheckpointDeclinedError, CheckpointError, StoreUnavailableError

T = TypeVar("T")


@dataclass(frozen=True)
class Job(Generic[T]):
    """A job of the pool, running or done. `what` describes it in error messages."""

    what: str
    future: "Future[T]"
    timeout_ms: int

    def result(self) -> T:
        """Wait for the job and return its result.

        Raises the `CheckpointError` that the job raised; `CheckpointDeclinedError` for anything else it raised, also
        for what is no `Exception`; `StoreUnavailableError` where it takes longer than the pool's timeout, and its
        outcome is unknown.
        """
        try:
            error = self.future.exception(self.timeout_ms / 1000)
        except NotDoneError:
            raise _too_slow(self.what, self.timeout_ms) from None
        if error is None:
            return self.future.result()
        if isinstance(error, CheckpointError):
            raise error
        raise CheckpointDeclinedError(
            f"an unexpected error: report it, unless the machine is at fault. "
            f"while={self.what}, error={type(error).__name__}: {error}"
        ) from error


class IoPool:
    """A bounded number of threads, and of jobs that wait for one; shared by all that a process does.

    The threads start with the first job, and again in a forked child, which inherits none.
    """

    def __init__(self, threads: int = 4, waiting_max: int = 16, timeout_ms: int = 600_000) -> None:
        """At most `waiting_max` jobs wait for a thread; `submit` blocks while the queue is full."""
        self.timeout_ms = timeout_ms
        self._threads = threads
        self._waiting_max = waiting_max
        self._lock = threading.Lock()
        self._workers: tuple[int, ThreadPoolExecutor, threading.Semaphore] | None = None

    def submit(self, what: str, job: Callable[[], T]) -> Job[T]:
        """Queue a job. Waits while the queue is full; raises `StoreUnavailableError` where that takes too long."""
        executor, room = self._start()
        if not room.acquire(timeout=self.timeout_ms / 1000):
            raise _too_slow(what, self.timeout_ms)
        return self._submit(executor, room, what, job)

    def submit_if_idle(self, what: str, job: Callable[[], T]) -> Job[T] | None:
        """Queue a job that may be skipped: None, and no job, where the queue is full."""
        executor, room = self._start()
        return self._submit(executor, room, what, job) if room.acquire(blocking=False) else None

    def _submit(
        self, executor: ThreadPoolExecutor, room: threading.Semaphore, what: str, job: Callable[[], T]
    ) -> Job[T]:
        """Hand over a job for which there is room."""
        try:
            future = executor.submit(job)
        except BaseException:
            room.release()
            raise
        # However the job ends: done, failed or cancelled.
        future.add_done_callback(lambda _: room.release())
        return Job(what, future, self.timeout_ms)

    def _start(self) -> tuple[ThreadPoolExecutor, threading.Semaphore]:
        with self._lock:
            if self._workers is None or self._workers[0] != os.getpid():
                executor = ThreadPoolExecutor(self._threads, thread_name_prefix="dagster-ckpt-io")
                self._workers = (os.getpid(), executor, threading.Semaphore(self._threads + self._waiting_max))
            return self._workers[1:]


def _too_slow(what: str, timeout_ms: int) -> StoreUnavailableError:
    return StoreUnavailableError(
        f"the store is too slow: see what is wrong with it, then try again. waited_ms={timeout_ms}, while={what}"
    )
