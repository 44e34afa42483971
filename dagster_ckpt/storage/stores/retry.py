"""Retries while a store does not answer: bounded, with exponential backoff and jitter."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from dagster_ckpt.clock import Clock
from dagster_ckpt.errors import StoreUnavailableError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to retry, and the first and the longest pause between two tries."""

    total_ms: int = 60_000
    pause_ms: int = 50
    pause_ms_max: int = 5_000


class RetrySpan:
    """One span of patience: all calls made through it share its end."""

    def __init__(self, clock: Clock, patience: Patience) -> None:
        self._clock = clock
        self._pause_ms = patience.pause_ms
        self._pause_ms_max = patience.pause_ms_max
        self._end_ms = clock.monotonic_ms() + patience.total_ms

    def retry(self, ask: Callable[[], T]) -> T:
        """What `ask` returns, once the store answers. Raises its last `StoreUnavailableError` when patience ends."""
        while True:
            try:
                return ask()
            except StoreUnavailableError:
                if self._clock.monotonic_ms() >= self._end_ms:
                    raise
                self._pause()

    def _pause(self) -> None:
        # Jitter: half of the pause is random, so that writers that failed together do not retry together.
        chance = int(self._clock.unique()[:4], 16) / 0xFFFF
        self._clock.sleep_ms(round(self._pause_ms * (0.5 + chance / 2)))
        self._pause_ms = min(self._pause_ms * 2, self._pause_ms_max)
