"""Reads from a remote store, several at once."""

from collections.abc import Callable, Sequence

from dagster_ckpt.state.io_pool import IoPool
from dagster_ckpt.state.remote.remote_bytes import Spread


def spread_over(pool: IoPool) -> Spread:
    """Runs jobs on this pool, which must be one for reads alone.

    In a pool shared with writes, a look-up would queue behind files that are not urgent, and a job of the pool that
    reads would wait for a thread while it holds one.
    """

    def spread(jobs: Sequence[Callable[[], None]]) -> None:
        if len(jobs) == 1:
            jobs[0]()
            return
        begun = [pool.submit("reading from the store", job) for job in jobs]
        errors = []
        for job in begun:
            try:
                job.result()
            except Exception as error:  # noqa: BLE001  (raised below, once no job puts bytes anywhere any more)
                errors.append(error)
        if errors:
            raise errors[0]

    return spread


OPENERS = spread_over(IoPool(threads=8))
"""For runs that are opened side by side: each reads with `READERS`, and a pool must not wait for itself."""

READERS = spread_over(IoPool(threads=8))
"""For readers of whole tables: 8 requests are about what a host's network takes. Its threads start when needed."""
