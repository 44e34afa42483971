import os
import threading

import pytest

from dagster_ckpt.errors import CheckpointDeclinedError, CorruptStateError, StoreUnavailableError
from dagster_ckpt.state.io_pool import IoPool


class Panic(BaseException):
    """What extension modules raise when they panic: no Exception, on purpose."""


def fail(error: BaseException) -> None:
    raise error


@pytest.mark.parametrize(
    "error", [Panic("a bug"), SystemExit(1), KeyboardInterrupt(), MemoryError(), OSError(5, "disk")]
)
def test_whatever_a_job_raises_fails_that_job_alone(error: BaseException) -> None:
    pool = IoPool(threads=1, waiting_max=1)
    for _ in range(5):  # more often than there are threads and places in the queue
        job = pool.submit("writing some.arrow", lambda: fail(error))
        with pytest.raises(CheckpointDeclinedError, match=f"while=writing some.arrow, error={type(error).__name__}"):
            job.result()
    assert pool.submit("writing another.arrow", lambda: 7).result() == 7


def test_an_error_that_says_what_to_do_reaches_the_waiter_as_it_is() -> None:
    job = IoPool(threads=1).submit("reading", lambda: fail(CorruptStateError("damaged. file=a")))
    with pytest.raises(CorruptStateError, match=r"^damaged\. file=a$"):
        job.result()


def test_waiting_for_a_job_ends_after_the_timeout_and_the_pool_goes_on() -> None:
    pool, go_on = IoPool(threads=2, timeout_ms=50), threading.Event()
    job = pool.submit("writing slow.arrow", go_on.wait)
    with pytest.raises(StoreUnavailableError, match=r"waited_ms=50, while=writing slow\.arrow"):
        job.result()
    assert pool.submit("writing quick.arrow", lambda: 7).result() == 7
    go_on.set()
    assert job.result() is True


def test_a_caller_with_more_than_the_pool_takes_waits_for_room() -> None:
    pool, go_on = IoPool(threads=1, waiting_max=1, timeout_ms=50), threading.Event()
    jobs = [pool.submit("first", go_on.wait), pool.submit("second", go_on.wait)]
    with pytest.raises(StoreUnavailableError, match="waited_ms=50, while=third"):
        pool.submit("third", go_on.wait)
    go_on.set()
    assert [job.result() for job in jobs] == [True, True]
    assert pool.submit("third", lambda: 7).result() == 7


def test_a_forked_child_has_threads_of_its_own() -> None:
    pool = IoPool(threads=1)
    ran_in = pool.submit("parent", os.getpid).result()
    pool._workers = (ran_in + 1, *pool._workers[1:])  # type: ignore[index]  # as a child finds it
    before = pool._workers[1]
    assert pool.submit("child", os.getpid).result() == os.getpid()
    assert pool._workers[1] is not before


def test_what_need_not_be_done_waits_for_no_place() -> None:
    pool, go_on = IoPool(threads=1, waiting_max=0, timeout_ms=10_000), threading.Event()
    job = pool.submit("writing", go_on.wait)
    assert pool.submit_if_idle("deleting", lambda: 7) is None
    go_on.set()
    job.result()
    while (later := pool.submit_if_idle("deleting", lambda: 7)) is None:
        pass  # the place is given back a moment after the result
    assert later.result() == 7
