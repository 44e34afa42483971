"""The lag of a source that reports offsets: Kafka, and any other of Spark's.

A record of Kafka has a timestamp, so the oldest unread one says since when it waits. Where records have none, that is
the time of the first look which found more than is committed now: `OffsetHistory` keeps the looks that still matter. An
offset of any other source has no time either: it waits since Spark's last look (`StreamingQueryProgress`), which is
taken with every trigger, and every 10 s while nothing comes.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from dagster_ckpt.protocol.epochs.topic_offsets import Offsets
from dagster_ckpt.runtime.lag.lag import SourceLag

_LOOKS_MAX = 1_000


@dataclass
class OffsetHistory:
    """The newest offsets that were found in one source, and when they were first found; not thread-safe."""

    _looks: deque[tuple[int, Offsets]] = field(default_factory=deque, init=False)

    def lag(self, latest: Offsets, committed: Offsets, looked_ms: int) -> SourceLag:
        """The lag after one more look. Partitions that are not in `committed` are unread from 0 on."""
        if not self._looks or self._looks[-1][1] != latest:
            self._looks.append((looked_ms, latest))
        while self._looks and not unread(self._looks[0][1], committed):
            self._looks.popleft()
        if len(self._looks) > _LOOKS_MAX:
            self._looks = deque([look for at, look in enumerate(self._looks) if at % 2 == 0])
        rows = sum(latest[partition] - at for partition, at in unread(latest, committed).items())
        return SourceLag(rows=rows, since_ms=self._looks[0][0] if self._looks else None)


def unread(latest: Offsets, committed: Offsets) -> Offsets:
    """Where each partition that has more than is committed is read on."""
    begins = {partition: committed.get(partition, 0) for partition in latest}
    return {partition: at for partition, at in begins.items() if latest[partition] > at}


def lag_of_any(source: Mapping[str, Any], looked_ms: int, *, finds_data: bool) -> SourceLag:
    """The lag of a source of an unknown kind, from its part of Spark's progress.

    Nothing waits where Spark's last look found nothing. Otherwise what has come since that look is unread, perhaps.
    """
    latest = source.get("latestOffset")
    behind = finds_data or (latest is not None and latest != source.get("endOffset"))
    return SourceLag(since_ms=looked_ms if behind else None)


def looked_ms(progress: Mapping[str, Any]) -> int:
    """When the trigger of this progress began, in ms since the Unix epoch."""
    return round(datetime.fromisoformat(str(progress["timestamp"])).timestamp() * 1000)
