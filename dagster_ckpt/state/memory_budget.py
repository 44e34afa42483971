"""One budget of bytes for all that a worker process holds of its streams."""

import threading

from dagster_ckpt.errors import StoreUnavailableError

_CHUNK_BYTES_MAX = 64 * 1024 * 1024
_SOFT_BYTES_MAX = 1024 * 1024 * 1024
"""One table may hold all of it in a single column of strings, plus one chunk."""


class MemoryBudget:
    """Counts the bytes held by tables (what an epoch wrote so far) and by writes (files on their way to the store).

    A quarter of the limit is for tables: above these `soft_bytes` a task flushes. Half of it is for tables and writes
    together. A write for which there is no room waits for others to end; where there are none it goes ahead. So only a
    single batch that is larger than the limit breaks it, and no write waits for itself. The other half is for work,
    which is not counted: rows are taken in, and those of the epoch merged, in chunks of `chunk_bytes`, a sixteenth, of
    which several copies are made.

    Both have an upper bound, however much memory there is: Arrow's 32-bit offsets reach 2 GiB.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.soft_bytes = min(limit_bytes // 4, _SOFT_BYTES_MAX)
        self.chunk_bytes = min(max(1, limit_bytes // 16), _CHUNK_BYTES_MAX)
        self._hard_bytes = limit_bytes // 2
        self._changed = threading.Condition()
        self._tables: dict[object, int] = {}
        self._writes: dict[Reservation, int] = {}

    @property
    def held_bytes(self) -> int:
        """All that is held now."""
        with self._changed:
            return self._held_bytes()

    def hold(self, table: object, bytes_: int) -> None:
        """Record how much a table holds now; 0: nothing any more."""
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

    def begin_write(self, what: str, bytes_: int, timeout_ms: int) -> "Reservation":
        """Wait for room for a file on its way.

        Raises `StoreUnavailableError` where other writes take longer than the timeout; then nothing is held.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: self._has_room(bytes_), timeout_ms / 1000):
                raise self._too_slow(what, bytes_, timeout_ms)
            reservation = Reservation(self)
            self._writes[reservation] = bytes_
        return reservation

    def make_room(self, what: str, bytes_: int, timeout_ms: int) -> None:
        """Wait until uncounted work of `bytes_` fits beside what is held.

        It waits only for writes to end: where there are none it goes ahead. Raises `StoreUnavailableError` where they
        take longer than the timeout.
        """
        with self._changed:
            fits = self._changed.wait_for(
                lambda: not self._writes or self._held_bytes() + bytes_ <= self.limit_bytes, timeout_ms / 1000
            )
        if not fits:
            raise self._too_slow(what, bytes_, timeout_ms)

    def hold_write(self, reservation: "Reservation", bytes_: int) -> None:
        """Record how much a write holds now; 0: nothing any more."""
        with self._changed:
            self._writes.pop(reservation, None)
            if bytes_:
                self._writes[reservation] = bytes_
            self._changed.notify_all()

    def _has_room(self, bytes_: int) -> bool:
        return not self._writes or self._held_bytes() + bytes_ <= self._hard_bytes

    def _too_slow(self, what: str, bytes_: int, timeout_ms: int) -> StoreUnavailableError:
        return StoreUnavailableError(
            f"no memory for a file, since others are still being written: see why the store is so slow, then "
            f"try again. waited_ms={timeout_ms}, for={what}, bytes={bytes_}, limit={self.limit_bytes}"
        )

    def _held_bytes(self) -> int:
        return sum(self._tables.values()) + sum(self._writes.values())


class Reservation:
    """The memory of one write. Give it back however the write ends."""

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget = budget

    def shrink_to(self, bytes_: int) -> None:
        """Lower what the write holds to this."""
        self._budget.hold_write(self, bytes_)

    def give_back(self) -> None:
        """Hold nothing any more. Idempotent."""
        self._budget.hold_write(self, 0)
