"""Detects a takeover while a writer has nothing to commit, and so no create that would be refused."""

from dataclasses import dataclass, field

from dagster_ckpt.clock import Clock
from dagster_ckpt.ids import Version
from dagster_ckpt.storage.writer.drain_requests import rest_of
from dagster_ckpt.storage.writer.stream_writer import StreamWriter


@dataclass
class TakeoverWatch:
    """An idle writer's watch for a newer term.

    It costs two existence checks after each `interval_ms` without a manifest (one to ten seconds), and nothing while
    epochs are more frequent: a successful create proves the same.
    """

    clock: Clock
    interval_ms: int
    _looked: tuple[Version, int] | None = field(default=None, init=False)

    def look(self, writer: StreamWriter) -> None:
        """Raise `FencedError` if another writer took over. Do not call it during a commit."""
        version, now_ms = writer.manifest.version, self.clock.monotonic_ms()
        if self._looked is None or self._looked[0] != version:
            self._looked = version, now_ms
        elif now_ms - self._looked[1] >= rest_of(self.interval_ms):
            self._looked = version, now_ms
            writer.look_for_another()
