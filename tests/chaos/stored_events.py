"""The events of a stream that Dagster has stored: their differences must add up to its totals, whatever was killed."""

from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields
from typing import Self

import dagster as dg

from dagster_ckpt.protocol.manifest.manifest import Manifest

_PAGE = 1_000


@dataclass(frozen=True)
class Counts:
    """Since the stream began, or of one event alone. The names are the labels of events."""

    rows_in: int = 0
    rows_out: int = 0
    late_rows: int = 0
    epochs: int = 0

    @classmethod
    def of(cls, manifest: Manifest) -> Self:
        """The totals of a stream, as its own history has them."""
        has = manifest.statistics
        return cls(has.total_rows_in, has.total_rows_out, has.total_late_rows, has.total_epochs)

    def plus(self, more: "Counts") -> "Counts":
        return Counts(*(one + other for one, other in zip(astuple(self), astuple(more), strict=True)))


@dataclass(frozen=True)
class StoredEvent:
    """One event: its epoch, what it reports since the event before, and the totals that it shows beside that."""

    epoch: int
    since: Counts
    totals: Counts


@dataclass(frozen=True)
class Sum:
    """Every event of a stream, added up. `wrong` describes the first event that does not add up."""

    events: int
    counts: Counts
    epoch: int
    wrong: str | None = None


def added_up(events: Sequence[StoredEvent]) -> Sum:
    """Events in the order in which Dagster stored them. Each must show as totals what all up to it add up to."""
    counts, wrong = Counts(), None
    for number, event in enumerate(events):
        counts = counts.plus(event.since)
        if wrong is None and counts != event.totals:
            before = events[number - 1].epoch if number else 0
            wrong = f"event {number} of {len(events)} does not add up: {counts=}, {event=}, epoch of the one {before=}"
    return Sum(len(events), counts, events[-1].epoch if events else 0, wrong)


def events_of(instance: dg.DagsterInstance, stream: str) -> list[StoredEvent]:
    """All that Dagster has stored of a stream, oldest first. Every event must have all labels."""
    found: list[StoredEvent] = []
    cursor, more = None, True
    while more:
        page = instance.fetch_materializations(dg.AssetKey(stream), _PAGE, cursor, ascending=True)
        events = [record.asset_materialization for record in page.records]
        found += [_read(event) for event in events if event is not None]
        cursor, more = page.cursor, page.has_more
    return found


def newest_event(instance: dg.DagsterInstance, stream: str) -> StoredEvent | None:
    """The newest event alone."""
    [*events] = (
        record.asset_materialization for record in instance.fetch_materializations(dg.AssetKey(stream), 1).records
    )
    return _read(events[0]) if events and events[0] is not None else None


def _read(event: dg.AssetMaterialization) -> StoredEvent:
    def number(label: str) -> int:
        return int(str(event.metadata[label].value))

    labels = [each.name for each in fields(Counts)]
    since, totals = (Counts(*(number(f"{label}{end}") for label in labels)) for end in ("", "_total"))
    return StoredEvent(number("epoch"), since, totals)
