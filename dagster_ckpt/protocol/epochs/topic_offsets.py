"""How far Kafka's topics were read, and which of their records cannot be read any more. Pure: `runtime.kafka` asks.

A position in topics is Spark's offset: `{"departures": {"0": 120, "1": 130}}`, the next offset of each partition. An
offset means nothing by itself: a topic that was deleted and created again counts from 0 again, and may have as many
records. So a manifest also has Kafka's id of each topic, which is never used twice.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from dagster_ckpt.protocol.manifest.manifest import SourcePosition

FORMAT = "kafka"
"""The format of a source that reads topics."""

Partition = tuple[str, int]
"""A topic and the number of one of its partitions."""

Offsets = Mapping[Partition, int]
"""The next offset to read of each partition."""


class LossReason(StrEnum):
    """Why records cannot be read: deleted from a topic, the topic or partition deleted, or another one of its name."""

    REMOVED = "removed"
    GONE = "gone"
    RECREATED = "recreated"


@dataclass(frozen=True, slots=True)
class TopicsNow:
    """What the brokers have now: the id of each topic, and of each partition the offsets `[begins, ends)`.

    A topic or partition that does not exist is left out, and so is an id that brokers before 2.8 do not have.
    """

    ids: Mapping[str, str]
    begins: Offsets
    ends: Offsets


@dataclass(frozen=True, slots=True)
class LostOffsets:
    """Offsets `[begin, end)` of a partition that the stream has not read and cannot read. `read_to` is its position.

    If the topic was recreated, they are offsets of the new one, which are below the position. If it is gone, it is not
    known how many there were: none are counted.
    """

    topic: str
    partition: int
    reason: LossReason
    read_to: int
    begin: int
    end: int

    def __str__(self) -> str:
        where, offsets = f"{self.topic}-{self.partition}", f"offsets {self.begin} to {self.end - 1}"
        if self.reason is LossReason.REMOVED:
            return f"{where} {offsets}"
        if self.reason is LossReason.GONE:
            return f"{where} (read up to offset {self.read_to})"
        new = f"{offsets} of the new topic are before that" if self.end > self.begin else "the new topic has none yet"
        return f"{where} (read up to offset {self.read_to}; {new})"


def parse_offsets(position: str | Mapping[str, Any]) -> Offsets:
    """Spark's offset of topics, from its JSON text or what it decodes to. Raises `ValueError` for any other offset."""
    try:
        topics = json.loads(position) if isinstance(position, str) else position
        return {
            (topic, int(partition)): int(at)
            for topic, partitions in topics.items()
            for partition, at in partitions.items()
        }
    except (AttributeError, TypeError, ValueError) as error:
        raise ValueError(f"this is no offset of Kafka's: {position!r}") from error


def next_offsets(position: SourcePosition) -> Offsets:
    """Where the stream reads on: after what it has read, or where it begins; empty where it has not begun."""
    if position.current is not None:
        return parse_offsets(position.current)
    # Spark writes the version of its log in the line before.
    return {} if position.initial is None else parse_offsets(position.initial.rpartition("\n")[2])


def find_lost(read_to: Offsets, ids: Mapping[str, str], now: TopicsNow, found: Offsets) -> tuple[LostOffsets, ...]:
    """What cannot be read after `read_to`. `ids` are those of the topics that were read, as far as they are known.

    `found` has the partitions that were found meanwhile too: they are read from their beginning, offset 0.
    """
    before = [_loss_after(partition, at, ids, now) for partition, at in sorted(read_to.items())]
    added = [_loss_after(partition, 0, {}, now) for partition in sorted(found.keys() - read_to.keys())]
    return tuple(each for each in (*before, *added) if each is not None)


def _loss_after(partition: Partition, at: int, ids: Mapping[str, str], now: TopicsNow) -> LostOffsets | None:
    topic, number = partition
    if partition not in now.ends:
        return LostOffsets(topic, number, LossReason.GONE, at, at, at)
    begins, ends = now.begins[partition], now.ends[partition]
    # From offset 0 on a new topic is read as the old one was: as a whole.
    is_another = at > 0 and topic in ids and now.ids.get(topic, ids[topic]) != ids[topic]
    if is_another or ends < at:
        return LostOffsets(topic, number, LossReason.RECREATED, at, begins, max(begins, min(at, ends)))
    return LostOffsets(topic, number, LossReason.REMOVED, at, at, begins) if begins > at else None


def read_elsewhere(missing: Iterable[LostOffsets], positions: Iterable[SourcePosition]) -> list[LostOffsets]:
    """What one stream has lost and another stream at these positions has read at least a part of.

    Where both read topics of one name from two clusters, the position further on counts.
    """
    read: dict[Partition, int] = {}
    for position in positions:
        if position.source.format == FORMAT:
            for partition, at in next_offsets(position).items():
                read[partition] = max(at, read.get(partition, 0))
    return [each for each in missing if read.get((each.topic, each.partition), 0) > each.read_to]


def offsets_text(offsets: Offsets) -> str:
    """`departures 0: 120, 1: 130; refunds 0: 7`."""
    return "; ".join(_of_topics(offsets))


def _of_topics(offsets: Offsets) -> Iterator[str]:
    for topic in sorted({topic for topic, _ in offsets}):
        numbers = sorted((number, at) for (name, number), at in offsets.items() if name == topic)
        yield f"{topic} {', '.join(f'{number}: {at}' for number, at in numbers)}"
