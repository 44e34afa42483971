"""Looking at the store again and again: where the streams stand, and since when nothing has moved."""

from collections.abc import Iterable
from dataclasses import replace

from dagster_ckpt import CheckpointStore
from demo.standing import Standing, standing


class Watch:
    """The standings of `streams`, as they were at the last look. Times are a monotonic clock's.

    A stream that reads another has come as many days as the epoch that it has read up to; so that one is watched too,
    and stands before it in `streams`.
    """

    def __init__(self, store: CheckpointStore, streams: list[str], now_s: float) -> None:
        self.store = store
        self._firsts: dict[str, tuple[float, int]] = {}
        self._lasts: dict[str, tuple[float, int]] = {}
        self._days: dict[str, dict[int, int]] = {stream: {} for stream in streams}
        self.standings = dict.fromkeys(streams, Standing())
        self.moved_s = now_s

    def look(self, now_s: float) -> None:
        """Look at every stream."""
        for stream, before in self.standings.items():
            now = standing(self.store, stream)
            if now.consumed:
                now = replace(now, days=min(self._days_at(*each) for each in now.consumed))
            self._days[stream][now.epoch] = now.days
            if now.epochs > before.epochs:
                self._firsts.setdefault(stream, (now_s, now.rows))
                self._lasts[stream] = (now_s, now.rows)
                self.moved_s = now_s
            self.standings[stream] = now

    def through(self, days: int) -> bool:
        """Whether every stream has committed that many days."""
        return all(now.days >= days for now in self.standings.values())

    def began(self, streams: Iterable[str]) -> bool:
        """Whether each of these streams has committed something."""
        return self._firsts.keys() >= {*streams}

    def rows_per_second(self, stream: str) -> float:
        """Of the rows that came after its first epoch, until its newest; 0 where it has but one."""
        (first_s, first_rows), (last_s, last_rows) = self._firsts[stream], self._lasts[stream]
        return (last_rows - first_rows) / (last_s - first_s) if last_s > first_s else 0.0

    def _days_at(self, stream: str, epoch: int) -> int:
        """How many days are in an epoch of a stream, as far as we have seen; there are epochs between two looks."""
        return max((days for seen, days in self._days[stream].items() if seen <= epoch), default=0)
