"""What a stream that reads another stream has consumed of it, and what follows. Pure: `upstream_log` does the I/O.

A downstream's position in its upstream is the offset of that source, in Spark's sense:

    {"uuid": "9f…", "epoch": 0}                            before the first batch: nothing consumed
    {"uuid": "9f…", "epoch": 41, "nonce": "c3…",
     "part": 3, "parts": 8, "term": 5}                     of the snapshot of epoch 41, 3 of 8 parts
    {"uuid": "9f…", "epoch": 41, "nonce": "c3…"}           all of the lineage up to epoch 41

So one number marks the end of the snapshot and the start of the log: there is no gap between them and no overlap. The
`consumed` of a manifest is derived from these texts: there are never two truths.

The number alone names no epoch for ever: an upstream that was restored from a backup reaches it again, with other rows.
The nonce does (`Manifest.epoch_nonce`). What follows a position is taken only if it builds on that very epoch:
`Succession`.
"""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import chain

from dagster_ckpt.ids import EMPTY, Epoch, Nonce, StreamUuid, Term, Version
from dagster_ckpt.protocol.epochs.lineage import is_abandoned
from dagster_ckpt.protocol.manifest.manifest import Backfill, BackfillStatus, Consumed, Manifest, SourcePosition

FORMAT = "dagster_ckpt"
"""The format of a source that is a stream. Its address is the stream's name."""


NO_TERM = Term(0)
"""The term of no writer: the first is 1."""


@dataclass(frozen=True, slots=True)
class UpstreamPosition:
    """How far an upstream has been read.

    With `parts`: the first `part` parts of the snapshot of `epoch`, which the reader pinned in its `term`. Without: all
    of the lineage up to `epoch`. Epoch 0: nothing. `nonce` is the epoch's; None: it is followed by its number alone.
    """

    uuid: StreamUuid
    epoch: Epoch = EMPTY
    part: int = 0
    parts: int = 0
    term: Term = NO_TERM
    nonce: Nonce | None = None

    @classmethod
    def after(cls, manifest: Manifest) -> "UpstreamPosition":
        """All of the lineage up to the epoch that the manifest shows."""
        return cls(manifest.uuid, manifest.epoch, nonce=manifest.epoch_nonce)

    @classmethod
    def from_consumed(cls, consumed: Consumed) -> "UpstreamPosition":
        """The same of what a manifest says that its stream has consumed."""
        return cls(consumed.uuid, consumed.epoch, nonce=consumed.nonce)

    @property
    def text(self) -> str:
        """The epoch for people: its number and its nonce."""
        return f"{self.epoch} ({'without a nonce' if self.nonce is None else self.nonce})"

    @property
    def in_snapshot(self) -> bool:
        """Whether the snapshot of `epoch` is not yet read to its end."""
        return self.part < self.parts

    def encode(self) -> str:
        """As JSON, always the same text for the same position: Spark compares it to detect new rows."""
        fields: dict[str, object] = {"uuid": self.uuid, "epoch": self.epoch}
        if self.nonce is not None:
            fields["nonce"] = self.nonce
        if self.parts:
            fields |= {"part": self.part, "parts": self.parts, "term": self.term}
        return json.dumps(fields)

    def is_at(self, shown: Manifest) -> bool:
        """Whether the manifest shows this position's epoch: by number alone where one of the two has no nonce."""
        nonces = (self.nonce, shown.epoch_nonce)
        return self.epoch == shown.epoch and (None in nonces or self.nonce == shown.epoch_nonce)


_NUMBER_MAX = (1 << 63) - 1
PARTS_MAX = 4096
"""The most parts in which a snapshot is read."""
_WHOLE, _OF_A_SNAPSHOT = {"uuid", "epoch"}, {"part", "parts", "term"}


def decode(text: str) -> UpstreamPosition:
    """The position in a source's offset. Raises `ValueError` for any other text."""
    try:
        fields = json.loads(text)
    except RecursionError as error:
        raise ValueError("not a position in a stream: it is nested too deeply") from error
    if not isinstance(fields, dict) or fields.keys() - {"nonce"} not in (_WHOLE, _WHOLE | _OF_A_SNAPSHOT):
        raise ValueError(f"not a position in a stream. offset={text}")
    uuid, numbers = fields["uuid"], [fields["epoch"], *(fields.get(name, 0) for name in ("part", "parts", "term"))]
    nonce = fields.get("nonce", "")
    if {type(uuid), type(nonce)} != {str} or not all(type(number) is int and number >= 0 for number in numbers):
        raise ValueError(f"not a position in a stream. offset={text}")
    epoch, part, parts, term = numbers
    if max(epoch, term) > _NUMBER_MAX or not part <= parts <= PARTS_MAX:
        raise ValueError(f"not a position in a stream: a number is too large. offset={text}")
    return UpstreamPosition(StreamUuid(uuid), Epoch(epoch), part, parts, Term(term), Nonce(nonce) if nonce else None)


ROWS_A_PART = 1 << 20
BYTES_A_PART = 128 << 20
"""About this much of a snapshot makes one micro-batch."""


def part_count(snapshot: Manifest, rows_max: int = ROWS_A_PART) -> int:
    """The number of parts in which to read a manifest's table, so that each has about `rows_max` rows at most."""
    statistics = snapshot.statistics
    rows = statistics.state_rows if snapshot.table_rows is None else snapshot.table_rows
    return min(max(-(-rows // rows_max), -(-statistics.state_bytes // BYTES_A_PART), 1), PARTS_MAX)


@dataclass(frozen=True, slots=True)
class Reader:
    """The reader of an upstream: a stream, and the term of its writer."""

    stream: StreamUuid
    term: Term

    @classmethod
    def of(cls, manifest: Manifest) -> "Reader":
        """The reader whose newest manifest this is."""
        return cls(manifest.uuid, manifest.term)

    def pin_at(self, at: UpstreamPosition) -> str:
        """The name of the pin, in the upstream, of the snapshot that comes next at this position.

        The pin exists from before the first part is read until after the last. If the upstream has no epoch yet there
        is none, and the stream begins with the log.
        """
        return backfill_pin(self.stream, at.term if at.in_snapshot else self.term)


def backfill_pin(reader: StreamUuid, term: Term) -> str:
    """The name of the pin, made in that term, that keeps the snapshot a stream begins with.

    Each term has a pin of its own, and no writer deletes a later term's: a fenced writer that was paused and resumes
    takes nothing from the live one.
    """
    return f"{backfill_pins(reader)}{term}"


BACKFILL_PINS = "backfill-"
"""The prefix of all such names."""


def backfill_pins(reader: StreamUuid) -> str:
    """The prefix of the names of one stream's pins."""
    return f"{BACKFILL_PINS}{reader}-"


_BACKFILL_PIN = re.compile(rf"{BACKFILL_PINS}([0-9a-f]{{32}})-([1-9][0-9]*)")


def parse_backfill_pin(name: str) -> tuple[StreamUuid, Term] | None:
    """The reader and the term in the name of such a pin; None for a name that a user chose."""
    found = _BACKFILL_PIN.fullmatch(name)
    return None if found is None else (StreamUuid(found[1]), Term(int(found[2])))


def terms_pinned(reader: StreamUuid, names: Iterable[str]) -> list[Term]:
    """The terms in which a stream pinned its snapshot, in the order of these names of pins."""
    parsed = (parse_backfill_pin(name) for name in names)
    return [pin[1] for pin in parsed if pin is not None and pin[0] == reader]


def next_part(
    at: UpstreamPosition, snapshot: Manifest, pinned_in: Term, rows_max: int = ROWS_A_PART
) -> UpstreamPosition:
    """The position after one more part of the snapshot; at `at` at least one part is still to be read.

    `pinned_in` is the term in which the snapshot of a first part was pinned.
    """
    if at.epoch == EMPTY:
        begun = UpstreamPosition.after(snapshot)
        return replace(begun, part=1, parts=part_count(snapshot, rows_max), term=pinned_in)
    assert at.in_snapshot, "the snapshot is read to its end"
    return replace(at, part=at.part + 1)


class Trouble(StrEnum):
    """Why nothing can follow a position any more."""

    RECREATED = "recreated"
    """Another stream has the upstream's name now."""
    ROLLED_BACK = "rolled back"
    """The upstream has abandoned the consumed epoch."""
    DIVERGED = "diverged"
    """The consumed epoch is not in the upstream's history: its folder was restored from a backup since."""
    CUT_OFF = "cut off"
    """The change log after the consumed epoch is gone."""
    UNPINNED = "unpinned"
    """The snapshot that is being read is gone."""
    PLANNED_OTHERWISE = "planned otherwise"
    """The query was planned on columns that the upstream has since dropped, or on another table while it was empty."""


def trouble(newest: Manifest, at: UpstreamPosition) -> Trouble | None:
    """Why the upstream, whose newest manifest this is, no longer builds on what was consumed; None: it does."""
    if newest.uuid != at.uuid:
        return Trouble.RECREATED
    if is_abandoned(newest, at.epoch):
        return Trouble.ROLLED_BACK
    # An epoch above the shown one that was not abandoned is none of the stream's; nor is another of the same number.
    if at.epoch > newest.epoch or (at.epoch == newest.epoch and not at.is_at(newest)):
        return Trouble.DIVERGED
    return None


def may_follow(newest: Manifest, epoch: Epoch) -> Iterator[Version]:
    """The versions after an epoch of the newest lineage, oldest first: those that make an epoch are what follows it."""
    return map(Version, chain.from_iterable(_following_ranges(newest, epoch, newest.epoch)))


def following_count(newest: Manifest, epoch: Epoch, below: Epoch) -> int:
    """How many of `may_follow` are below that epoch."""
    return sum(map(len, _following_ranges(newest, epoch, Epoch(below - 1))))


def _following_ranges(newest: Manifest, epoch: Epoch, last: Epoch) -> Iterator[range]:
    """The versions after `epoch` up to `last` that were not abandoned: as ranges, however far apart the numbers are."""
    # Versions above the shown epoch are openings, or were abandoned.
    begin = epoch + 1
    for entry in sorted(newest.abandoned, key=lambda each: each.first):
        if entry.last >= begin:
            yield range(begin, min(entry.first, last + 1))
            begin = entry.last + 1
    yield range(begin, last + 1)


@dataclass(frozen=True, slots=True)
class Succession:
    """An epoch of a lineage, `at`, and the identity of the manifest `below` what is read next; None: not known.

    Each manifest names the nonce of the one that it was built on, and the epochs that no rollback has abandoned follow
    one another without a gap. So a reader that compares them knows that all it reads is of one history, also where the
    upstream was restored while it read and it has a part of the old history in memory.
    """

    at: UpstreamPosition
    below: tuple[Version, Nonce] | None = None

    @classmethod
    def after(cls, at: UpstreamPosition) -> "Succession":
        """What must come next at a position."""
        below = None if at.epoch == EMPTY or at.nonce is None else (Version(at.epoch), at.nonce)
        return cls(at, below)

    def admits(self, manifest: Manifest) -> bool:
        """Whether the manifest, the next version that counts, is of the same history."""
        if self.below is not None and manifest.parent_nonce is not None:
            version, nonce = self.below
            if manifest.version == version + 1 and manifest.parent_nonce != nonce:
                return False
        # Those after an abandoned epoch that show it still count, until the rollback that shows this one.
        return manifest.kind.makes_epoch or manifest.epoch != self.at.epoch or self.at.is_at(manifest)

    def plus(self, manifest: Manifest) -> "Succession":
        """With one manifest more, which it admits."""
        at = UpstreamPosition.after(manifest) if manifest.kind.makes_epoch else self.at
        return Succession(at, (manifest.version, manifest.nonce))


def consumption(sources: Iterable[SourcePosition]) -> tuple[Consumed, ...]:
    """How far each upstream has been read, by name: the least of several sources that read it."""
    found: dict[str, Consumed] = {}
    for each in consumption_by_epoch(sources):
        found.setdefault(each.stream, each)
    return tuple(found.values())


def consumption_by_epoch(sources: Iterable[SourcePosition]) -> tuple[Consumed, ...]:
    """How far each upstream has been read, by name and epoch: one entry for each epoch that a source of it is at."""
    found = {
        Consumed(source.source.address, position.uuid, position.epoch, position.nonce)
        for source, position in _positions(sources)
    }
    return tuple(sorted(found, key=lambda each: (each.stream, each.epoch, each.nonce or "")))


def total_backfill(sources: Iterable[SourcePosition]) -> Backfill:
    """Whether all snapshots that the stream began with are fully read; if not, the progress of the slowest."""
    unfinished = [position for _, position in _positions(sources) if position.in_snapshot]
    if not unfinished:
        return Backfill()
    slowest = min(unfinished, key=lambda position: position.part / position.parts)
    return Backfill(BackfillStatus.CREATING, f"{slowest.part}/{slowest.parts}")


def _positions(sources: Iterable[SourcePosition]) -> Iterator[tuple[SourcePosition, UpstreamPosition]]:
    for source in sources:
        if source.source.format == FORMAT and source.current is not None:
            yield source, decode(source.current)
