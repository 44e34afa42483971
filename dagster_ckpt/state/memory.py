"""One budget of bytes for all that a worker process holds of its streams."""

import threading
from collections.abc import Callable

from dagster_ckpt.errors import StoreUnavailableError


class MemoryBudget:
    """Who holds how many bytes: tables (what an epoch wrote so far) and writes (files on their way to the store).

    Above `soft_bytes` of tables a task flushes. A write for which there is no room waits for other writes to end; where
    there are none it goes ahead. So a limit that is smaller than a single batch is broken by that batch alone, and
    nobody ever waits for what only he himself could give back.
    """

    def __init__(self, limit_bytes: int) -> None:
        """`limit_bytes` is the hard limit. Of it, a table and its file on the way each get a quarter."""
        self.limit_bytes = limit_bytes
        self.soft_bytes = limit_bytes // 4
        self.chunk_bytes = max(1, limit_bytes // 16)
        self._changed = threading.Condition()
        self._tables: dict[object, int] = {}
        self._writes: list[int] = []

    @property
    def held_bytes(self) -> int:
        """All that is held now."""
        with self._changed:
            return self._held()

    def hold(self, table: object, bytes_: int) -> None:
        """Say how much a table holds now; 0: nothing any more."""
        with self._changed:
            self._tables.pop(table, None)
            if bytes_:
                self._tables[table] = bytes_
            self._changed.notify_all()

    def must_flush(self, table: object) -> bool:
        """Whether tables hold more than the soft limit, and this one no less than its share of it."""
        with self._changed:
            mine = self._tables.get(table, 0)
            # Not only the greatest of all: another thread's table is not mine to flush.
            return sum(self._tables.values()) > self.soft_bytes and mine * len(self._tables) >= self.soft_bytes

    def begin_write(self, what: str, bytes_: int, timeout_ms: int) -> Callable[[], None]:
        """Wait for room for a file on its way. To be given back, once, by calling what this returns.

        Raises `StoreUnavailableError` where other writes take longer than the timeout; then nothing is held.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: self._has_room(bytes_), timeout_ms / 1000):
                raise StoreUnavailableError(
                    f"no memory for a file, since others are still being written: see why the store is so slow, then "
                    f"try again. waited_ms={timeout_ms}, for={what}, bytes={bytes_}, limit={self.limit_bytes}"
                )
            self._writes.append(bytes_)
        return lambda: self._end_write(bytes_)

    def _end_write(self, bytes_: int) -> None:
        with self._changed:
            self._writes.remove(bytes_)
            self._changed.notify_all()

    def _has_room(self, bytes_: int) -> bool:
        return not self._writes or self._held() + bytes_ <= self.limit_bytes

    def _held(self) -> int:
        return sum(self._tables.values()) + sum(self._writes)
