"""The one module that may read the clock or draw a random number. Everything else is handed what it needs."""

import threading
import time
import uuid
from typing import Protocol


class Clock(Protocol):
    """Time and chance as an argument, so that a simulation can be the world."""

    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch, UTC: for people to read, never to decide who may write."""
        ...

    def monotonic_ms(self) -> int:
        """Milliseconds of a clock that never goes back: for time-outs and leases."""
        ...

    def sleep_ms(self, duration_ms: int) -> None:
        """Let that much time pass."""
        ...

    def unique(self) -> str:
        """32 hexadecimal digits that no other call returns."""
        ...


class SystemClock:
    """The real world."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def sleep_ms(self, duration_ms: int) -> None:
        # An Event's wait is interruptible where Dagster terminates a run; it is what time.sleep would be.
        threading.Event().wait(duration_ms / 1000)

    def unique(self) -> str:
        return uuid.uuid4().hex
