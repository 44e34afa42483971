"""A clock for tests: time passes only when somebody sleeps, and chance is counted."""

import threading
from itertools import count


class StillClock:
    """Shared by all who live in one test; safe from threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ms = 1_700_000_000_000
        self._drawn = count(1)

    def now_ms(self) -> int:
        return self._ms

    def monotonic_ms(self) -> int:
        return self._ms

    def sleep_ms(self, duration_ms: int) -> None:
        with self._lock:
            self._ms += duration_ms

    def unique(self) -> str:
        # Spread out, because pauses take their chance from the first digits.
        return f"{next(self._drawn) * 0x9E3779B97F4A7C15 % 2**128:032x}"
