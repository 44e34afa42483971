"""Looking at the store again and again: where the streams stand, and since when nothing has moved."""

from dagster_ckpt import CheckpointStore
from demo.standing import Standing, standing


class Watch:
    """The standings of `streams`, as they were at the last look. Times are a monotonic clock's."""

    def __init__(self, store: CheckpointStore, streams: list[str], now_s: float) -> None:
        self.store = store
        self._first_s: dict[str, float] = {}
        self._last_s: dict[str, float] = {}
        self.standings = dict.fromkeys(streams, Standing())
        self.moved_s = now_s

    def look(self, now_s: float) -> None:
        """Look at every stream."""
        for stream, before in self.standings.items():
            now = standing(self.store, stream)
            if now.epochs > before.epochs:
                self._first_s.setdefault(stream, now_s)
                self._last_s[stream] = self.moved_s = now_s
            self.standings[stream] = now

    def through(self, days: int) -> bool:
        """Whether every stream has committed that many days."""
        return all(now.days >= days for now in self.standings.values())

    def seconds(self, stream: str) -> float:
        """From its first epoch to its newest."""
        return self._last_s.get(stream, 0.0) - self._first_s.get(stream, 0.0)
