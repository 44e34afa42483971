"""How far a stream is behind its sources: what waits there, and since when."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SourceLag:
    """What one source, or all of them together, has and the stream has not committed.

    A count is None where no source counts so: files and their bytes of a folder, rows of Kafka, epochs of an upstream.
    `since_ms` is the time, in ms since the Unix epoch, since when the oldest of it has been there; None where nothing
    waits.
    """

    files: int | None = None
    file_bytes: int | None = None
    rows: int | None = None
    epochs: int | None = None
    since_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Lag:
    """What waits in the sources of a stream, at `measured_ms` (ms since the Unix epoch)."""

    measured_ms: int
    waiting: SourceLag

    @property
    def is_caught_up(self) -> bool:
        """Whether all that the sources had was committed."""
        return self.waiting.since_ms is None

    def seconds(self, now_ms: int) -> float:
        """For how long the oldest of it has waited; 0 where nothing waits."""
        since_ms = self.waiting.since_ms
        return 0.0 if since_ms is None else max(0, now_ms - since_ms) / 1000


def together(lags: Iterable[SourceLag]) -> SourceLag:
    """The sum of the counts, and the oldest time."""
    each = tuple(lags)
    return SourceLag(
        files=_sum(lag.files for lag in each),
        file_bytes=_sum(lag.file_bytes for lag in each),
        rows=_sum(lag.rows for lag in each),
        epochs=_sum(lag.epochs for lag in each),
        since_ms=min((lag.since_ms for lag in each if lag.since_ms is not None), default=None),
    )


def _sum(counts: Iterable[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None
