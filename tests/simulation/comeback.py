"""The promise of recovery: where nothing else goes wrong, a stream whose writer was killed soon commits again."""

from typing import TYPE_CHECKING

from tests.simulation.oracle import BrokenPromiseError

if TYPE_CHECKING:
    from tests.simulation.stream import SimulatedStream

PERIOD_MS = 1_000
SOON_MS = 1_800_000
"""A lost start takes three minutes of ticks, a lapsed lease up to one, and one may follow the other a few times."""


class Comeback:
    """Starts the stream by hand, kills its writer after an epoch, and waits until the sensor has brought it back."""

    def __init__(self, stream: "SimulatedStream") -> None:
        self.is_done = False
        self._stream = stream
        self._world = world = stream.world
        self._began_ms = world.scheduler.now_ms
        self._is_killed = False
        self._epochs = self._committed
        stream.crash_loop = None
        world.dagster.launch(stream)
        self._look_later()

    @property
    def _committed(self) -> int:
        return self._stream.oracle.epochs

    def _look_later(self) -> None:
        self._world.scheduler.after(PERIOD_MS, self._look)

    def _look(self) -> None:
        if self._committed > self._epochs:
            if self._is_killed:
                self._stream.oracle.counts["came back"] += 1
                self.is_done = True
                return
            self._kill()
        if self._world.scheduler.now_ms - self._began_ms > SOON_MS:
            when = "after it was killed" if self._is_killed else "after it was started by hand"
            raise BrokenPromiseError("a stream comes back by itself", f"{self._stream.name} commits nothing {when}")
        self._look_later()

    def _kill(self) -> None:
        for run in self._world.dagster.runs:
            if run.stream is self._stream and run.process is not None:
                run.process.kill()
        self._is_killed, self._epochs = True, self._committed
