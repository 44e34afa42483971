"""Whether the work behind a lease still makes progress.

A separate thread renews the lease, and goes on while everything else hangs: in a call to a lost disk, to a stopped
Spark or to a database that never answers. So the work gives signs of life, and the lease beats only while they come. A
writer that hangs for too long looks dead, and another takes over; if it wakes up, its term is over.
"""

from dataclasses import dataclass, field

from dagster_ckpt.clock import Clock


@dataclass
class Pulse:
    """Signs of life, from any thread. `silence_ms_max` is the longest time between two.

    It must be longer than every other time-out, such as an epoch's.
    """

    clock: Clock
    silence_ms_max: int
    _sign_ms: int = field(init=False)

    def __post_init__(self) -> None:
        self.sign()

    def sign(self) -> None:
        """Report that the work has made progress, or has nothing to do."""
        self._sign_ms = self.clock.monotonic_ms()

    @property
    def silent_ms(self) -> int:
        """How long ago the last sign came."""
        return self.clock.monotonic_ms() - self._sign_ms

    @property
    def beats(self) -> bool:
        return self.silent_ms <= self.silence_ms_max
