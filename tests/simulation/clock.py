"""Time and chance as one simulated process sees them."""

from random import Random

from tests.simulation.scheduler import Killed, Process


class ProcessClock:
    """The `Clock` of one process: it goes at its own rate, from its own beginning; ids are the world's chance.

    The last eight digits of an id are the number of the process, so that a test can tell whose it is.
    """

    def __init__(self, process: Process, chance: Random) -> None:
        self._process = process
        self._chance = chance

    def now_ms(self) -> int:
        return self.monotonic_ms()

    def monotonic_ms(self) -> int:
        return round(self._process.scheduler.now_ms * self._process.rate) + self._process.offset_ms

    def sleep_ms(self, duration_ms: int) -> None:
        if not self._process.alive:
            raise Killed
        self._process.scheduler.this().sleep(round(duration_ms / self._process.rate))

    def unique(self) -> str:
        return f"{self._chance.getrandbits(96):024x}{self._process.number:08x}"
