"""A writer that has nothing to commit looks whether another took over: no create of its own would tell it."""

from dataclasses import dataclass, field

from dagster_ckpt.clock import Clock
from dagster_ckpt.ids import Version
from dagster_ckpt.storage.writer.drain_requests import rest_of
from dagster_ckpt.storage.writer.stream_writer import StreamWriter


@dataclass
class TakeoverWatch:
    """A resting writer's look-out for a newer term.

    It costs two existence checks after each `interval_ms` without a manifest (a second to ten seconds), and nothing
    while epochs follow each other faster: a create that succeeds says the same.
    """

    clock: Clock
    interval_ms: int
    _looked: tuple[Version, int] | None = field(default=None, init=False)

    def look(self, writer: StreamWriter) -> None:
        """Raise `FencedError` where another writer took over. Not while a commit is under way."""
        version, now_ms = writer.manifest.version, self.clock.monotonic_ms()
        if self._looked is None or self._looked[0] != version:
            self._looked = version, now_ms
        elif now_ms - self._looked[1] >= rest_of(self.interval_ms):
            self._looked = version, now_ms
            writer.look_for_another()
