"""The lag of a source that reports offsets in Spark's progress of a query (`StreamingQueryProgress`).

Spark looks at a source with every trigger, and reports the newest offset that it found as `latestOffset`; while nothing
comes, it reports every 10 s. An offset has no time. So the time since when rows wait is that of the first look which
found more than is committed now: `OffsetHistory` keeps the looks that still matter.
"""

import json
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from dagster_ckpt.runtime.lag.lag import SourceLag

_LOOKS_MAX = 1_000

Partitions = Mapping[tuple[str, str], int]
"""Kafka's offset: by topic and partition, the offset of the next row."""


@dataclass
class OffsetHistory:
    """The newest offsets that Spark found in one source, and when it first found them; not thread-safe."""

    _looks: deque[tuple[int, Partitions]] = field(default_factory=deque, init=False)

    def lag(self, latest: Partitions, committed: Partitions, looked_ms: int) -> SourceLag:
        """The lag after one more look. Topics and partitions that are not in `committed` are unread from 0 on."""
        if not self._looks or self._looks[-1][1] != latest:
            self._looks.append((looked_ms, latest))
        while self._looks and not _rows_behind(self._looks[0][1], committed):
            self._looks.popleft()
        if len(self._looks) > _LOOKS_MAX:
            self._looks = deque([look for at, look in enumerate(self._looks) if at % 2 == 0])
        since_ms = self._looks[0][0] if self._looks else None
        return SourceLag(rows=_rows_behind(latest, committed), since_ms=since_ms)


def partitions_of(offset: Any) -> Partitions:
    """Kafka's offset, from JSON text or what it decodes to. Raises `ValueError` for any other offset."""
    topics = json.loads(offset) if isinstance(offset, str) else offset
    try:
        return {
            (topic, partition): int(at) for topic, partitions in topics.items() for partition, at in partitions.items()
        }
    except (AttributeError, TypeError) as error:
        raise ValueError(f"this is no offset of Kafka's: {offset!r}") from error


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


def _rows_behind(latest: Partitions, committed: Partitions) -> int:
    return sum(max(0, until - committed.get(partition, 0)) for partition, until in latest.items())
