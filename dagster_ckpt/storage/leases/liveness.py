"""Whether the work that a lease speaks for still moves.

A lease is renewed by a thread of its own, which beats on while everything else hangs: in a call to a disk that is gone,
to a Spark that was stopped, to a database that never answers. So the work gives signs, and the lease beats only while
they come. Who hangs for too long looks dead, and another takes over; should it wake up, its term is over.
"""

from dataclasses import dataclass, field

from dagster_ckpt.clock import Clock


@dataclass
class Pulse:
    """Signs of life, from any thread. `silence_ms_max` is how long they may stay away.

    It must be longer than anything that is bounded already, such as an epoch's time-out.
    """

    clock: Clock
    silence_ms_max: int
    _sign_ms: int = field(init=False)

    def __post_init__(self) -> None:
        self.sign()

    def sign(self) -> None:
        """The work has come a step further, or has nothing to do and knows it."""
        self._sign_ms = self.clock.monotonic_ms()

    @property
    def silent_ms(self) -> int:
        """How long ago the last sign came."""
        return self.clock.monotonic_ms() - self._sign_ms

    @property
    def beats(self) -> bool:
        return self.silent_ms <= self.silence_ms_max
