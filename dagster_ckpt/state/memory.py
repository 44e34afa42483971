"""One budget of bytes for all that a worker process holds of its streams."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class MemoryBudget:
    """Who holds how many bytes: tables (what the epoch wrote so far) and writes (files on their way to the store).

    Above `soft_bytes` of tables a task flushes. A write that would go above `limit_bytes` in all waits for other writes
    to end. Where there are none it goes ahead: so a limit smaller than a single batch is broken by that batch alone,
    and nobody ever waits for what only he himself could give back.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.soft_bytes = limit_bytes // 4
        self.chunk_bytes = max(1, limit_bytes // 16)
        self._changed = threading.Condition()
        self._tables: dict[object, int] = {}
        self._writes = 0
        self._writes_bytes = 0

    @property
    def held_bytes(self) -> int:
        """All that is held now."""
        with self._changed:
            return self._held()

    def hold(self, table: object, bytes_: int) -> None:
        """Say how much a table holds now; 0: nothing any more."""
        with self._changed:
            self._tables[table] = bytes_
            if bytes_ == 0:
                del self._tables[table]
            self._changed.notify_all()

    @property
    def is_above_soft(self) -> bool:
        """Whether tables hold so much that the greatest should be flushed."""
        with self._changed:
            return sum(self._tables.values()) > self.soft_bytes

    @contextmanager
    def writing(self, bytes_: int, timeout_ms: int) -> Iterator[None]:
        """Hold the bytes of a write; given back however it ends. Waits for room while other writes are under way."""
        self.begin_write(bytes_, timeout_ms)
        try:
            yield
        finally:
            self.end_write(bytes_)

    def begin_write(self, bytes_: int, timeout_ms: int) -> None:
        with self._changed:
            self._changed.wait_for(
                lambda: self._writes == 0 or self._held() + bytes_ <= self.limit_bytes, timeout_ms / 1000
            )
            self._writes += 1
            self._writes_bytes += bytes_

    def end_write(self, bytes_: int) -> None:
        with self._changed:
            self._writes -= 1
            self._writes_bytes -= bytes_
            self._changed.notify_all()

    def _held(self) -> int:
        return sum(self._tables.values()) + self._writes_bytes
