"""Judges a delivery: what its destination shows, what its manifests record, and why it stops."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dagster_ckpt.delivery.destination import DeliveryMode
from dagster_ckpt.delivery.judgement import PositionFinding
from dagster_ckpt.errors import IncompatibleStateError
from dagster_ckpt.ids import EMPTY, FIRST, Epoch, StreamUuid, Term, Version
from dagster_ckpt.protocol.change_columns import INSERT, UPDATE_POSTIMAGE
from dagster_ckpt.protocol.epochs.lineage import is_abandoned
from dagster_ckpt.protocol.epochs.subscriber import decode_subscriber
from dagster_ckpt.protocol.epochs.upstream import Reader, UpstreamPosition, backfill_pin, decode
from dagster_ckpt.protocol.manifest.manifest import Manifest, ManifestKind
from dagster_ckpt.protocol.object_names import pin_name, subscriber_name
from tests.simulation.oracle import BrokenPromiseError, Oracle
from tests.simulation.reading import Reading, ReadingOracle, read_to

if TYPE_CHECKING:
    from tests.simulation.deliveries.database import Database, DatabaseRow
    from tests.simulation.deliveries.delivering import Delivering

_STOPS_UPSERTS = {PositionFinding.EMPTIED, PositionFinding.FOREIGN}
_REPLACE = (PositionFinding.ROLLED_BACK, PositionFinding.DIVERGED, PositionFinding.CUT_OFF, PositionFinding.UNPINNED)


@dataclass
class DeliveryOracle(ReadingOracle):
    """`committed` are all positions that its destination has ever had."""

    delivery: "Delivering" = field(init=False)
    committed: set[str] = field(default_factory=set)

    def goes_back_to(self, known: Mapping[str, Any], before: Oracle) -> None:
        super().goes_back_to(known, before)
        assert isinstance(before, DeliveryOracle), "it judges the same delivery"
        self.committed = before.committed  # the destination was not restored

    # ---- what the destination shows

    def destination_changed(self, delivery: str, before: str | None, replaced: bool) -> None:
        """A transaction was committed there, after the position `before`: rows and position are what the stream has."""
        contents = self.delivery.database.contents
        text = contents.positions.get(delivery)
        if text is None:
            raise BrokenPromiseError("rows and position are one", f"{delivery} has rows and no position")
        self.committed.add(text)
        at = decode(text)
        stream = self.oracles.get(at.uuid)
        stream = None if stream is None else stream.with_epoch(at)
        shown = None if stream is None else stream.history.get(Version(max(at.epoch, FIRST)))
        is_epoch = at.epoch == EMPTY or (
            shown is not None and (shown.kind.makes_epoch or shown.kind is ManifestKind.FORK)
        )
        if stream is None or shown is None or not is_epoch:
            raise BrokenPromiseError("only committed epochs are delivered", text)
        if replaced:
            self._may_replace(None if before is None else decode(before))
        known = None if self.newest is None else read_to(self.newest)
        if self.delivery.database.is_emptied and known is not None and known.epoch > EMPTY:
            raise BrokenPromiseError("what people have emptied is not filled again", text)
        if self.delivery.mode is DeliveryMode.UPSERT:
            self._is_the_table(stream, shown, at, contents.rows)
        else:
            self._is_all_changes(stream, shown, at, contents.rows)
        self.counts["deliveries of snapshots" if at.parts else "deliveries"] += 1

    def _may_replace(self, before: UpstreamPosition | None) -> None:
        if self.delivery.mode is DeliveryMode.APPEND:
            raise BrokenPromiseError("rows of an append delivery stay", f"all after {before} were replaced")
        if before is None or not any(self._is_so(found, before, self.delivery.database) for found in _REPLACE):
            raise BrokenPromiseError("a table is replaced for a reason", f"{before}")
        self.counts["tables replaced"] += 1

    def _is_the_table(
        self, stream: Oracle, shown: Manifest, at: UpstreamPosition, rows: "tuple[DatabaseRow, ...]"
    ) -> None:
        sums = {} if at.epoch == EMPTY else stream.sums_of(shown)
        wanted = {key: float(total) for key, total in sums.items() if _is_read(at, key)}
        found = {row[0]: row[1] for row in rows}
        if len(rows) != len(found) or found != wanted:
            raise BrokenPromiseError("a destination shows the table", f"{found} at {at}, not {wanted}")

    def _is_all_changes(
        self, stream: Oracle, shown: Manifest, at: UpstreamPosition, rows: "tuple[DatabaseRow, ...]"
    ) -> None:
        found = Counter(rows)
        if shown.pipeline.appends:
            wanted = Counter[tuple[object, ...]]((str(key), float(amount)) for key, amount in stream.rows_of(shown))
        else:
            wanted = self._changes(stream, shown, at, rows)
        # Which files of an append-only table a part has is the product's own choice.
        missing = Counter() if shown.pipeline.appends and at.in_snapshot else wanted - found
        if missing or found - wanted:
            what = f"{sorted(missing)} are missing, {sorted(found - wanted)} are too many at {at}"
            raise BrokenPromiseError("a destination has each change once", what)

    def _changes(
        self, stream: Oracle, shown: Manifest, at: UpstreamPosition, rows: "tuple[DatabaseRow, ...]"
    ) -> Counter[tuple[object, ...]]:
        """The table that the delivery began with, and the changes from there to `shown`, epoch by epoch."""
        first = at.epoch if at.parts else next((row[2] for row in rows if row[3] == INSERT), EMPTY)
        assert isinstance(first, int)
        assert stream.logged is not None, "the logs of a stream that is delivered are known"
        found = Counter[tuple[object, ...]]()
        epoch: int = shown.epoch
        while epoch > first:
            if stream.history[Version(epoch)].kind is ManifestKind.FORK:
                first = epoch  # it began with an empty table, of which nothing is in the destination
                break
            found.update((key, float(total), epoch, UPDATE_POSTIMAGE) for key, total in stream.logged[Epoch(epoch)])
            epoch = stream.history[Version(epoch - 1)].epoch  # what its parent shows
        if epoch != first:
            raise BrokenPromiseError("an append delivery follows one lineage", f"{at} does not build on {first}")
        if first > EMPTY:
            table = stream.sums_of(stream.history[Version(first)])
            found.update((key, float(total), first, INSERT) for key, total in table.items() if _is_read(at, key))
        return found

    # ---- what its manifests record

    def _consumed_the_next_batch(self, before: Manifest | None, manifest: Manifest) -> None:
        """Each epoch records a position that the destination has had."""
        if manifest.kind is not ManifestKind.EPOCH:
            return
        position = manifest.sources[0].current
        if position not in self.committed:
            raise BrokenPromiseError("a delivery records what was committed", f"{manifest.version}: {position}")
        if before is not None and before.sources and before.sources[0].current == position:
            raise BrokenPromiseError("each epoch reads on", f"{manifest.version} has read {position}, as before")

    def _shows_a_prefix(self, manifest: Manifest) -> None:
        """Its rows are in the destination."""

    def _becomes_the_newest(self, before: Manifest | None, manifest: Manifest) -> None:
        was, at = None if before is None else read_to(before), read_to(manifest)
        if was is not None and at is not None and isinstance(self.reading, DeliveryReading):
            if at.epoch < was.epoch:
                self.counts["went back with the destination"] += 1
                self.reading.goes_back(was.epoch)
            elif at.in_snapshot and not was.in_snapshot:
                self.counts["went back into a snapshot with the destination"] += 1
                self.reading.goes_back_into(at.term)
        super()._becomes_the_newest(before, manifest)

    # ---- why it stops

    def may_stop(self, mode: DeliveryMode, database: "Database", error: IncompatibleStateError) -> None:
        """Check that the reason in the error of a stopped run is true."""
        text = str(error)
        found = next((each for each in PositionFinding if text.startswith(each)), None)
        if found is None:
            raise error
        self.counts[f"stopped: {found.name.lower()}"] += 1
        position = text.rpartition("position=")[2].partition(", there=")[0]
        if not self._is_so(found, None if position == "None" else decode(position), database):
            raise BrokenPromiseError("a delivery stops for a reason", text)
        if mode is DeliveryMode.UPSERT and found not in _STOPS_UPSERTS:
            raise BrokenPromiseError("an upsert delivery replaces the table", text)

    def _is_so(self, found: PositionFinding, at: UpstreamPosition | None, database: "Database") -> bool:
        if found is PositionFinding.EMPTIED:
            return at is None and database.mended > 0
        assert at is not None, "only a position can be wrong"
        stream, newest = self.upstream, self.upstream.newest
        if newest is None or found is PositionFinding.FOREIGN:
            return newest is None or at.uuid != newest.uuid
        # What was promised behind an epoch that a restore has taken away is gone with it.
        may_be_gone = self.reading.has_lost(at.epoch) or database.mended > 0 or not stream.has_epoch(at)
        match found:
            case PositionFinding.ROLLED_BACK | PositionFinding.DIVERGED:
                return (
                    is_abandoned(newest, at.epoch) if found is PositionFinding.ROLLED_BACK else not stream.has_epoch(at)
                )
            case PositionFinding.CUT_OFF:
                return Version(at.epoch) in stream.freed and may_be_gone
            case PositionFinding.UNPINNED if at.in_snapshot:
                name = pin_name(Reader(self.uuid, at.term).pin_at(at))
                return name not in stream.truth.objects and may_be_gone
        return False

    # ---- the end

    def has_arrived(self, delivery: str) -> None:
        """All that the stream has is in the destination."""
        text, newest = self.delivery.database.contents.positions.get(delivery), self.upstream.newest
        assert newest is not None, "a stream ends with an epoch"
        at = None if text is None else decode(text)
        if at is None or at.in_snapshot or (at.uuid, at.epoch) != (newest.uuid, newest.epoch):
            raise BrokenPromiseError("a delivery arrives", f"{text} in the end, not epoch {newest.epoch}")
        if self.delivery.world.restores and newest.epoch > EMPTY:
            shown, rows = self.upstream.history[Version(newest.epoch)], self.delivery.database.contents.rows
            judge = self._is_the_table if self.delivery.mode is DeliveryMode.UPSERT else self._is_all_changes
            judge(self.upstream, shown, at, rows)


@dataclass
class DeliveryReading(Reading):
    """What a delivery may expect of its stream. Its position goes back where its destination does.

    Nothing more is promised behind such a position: collectors have spared what is behind the one before. Nor is a
    snapshot that it had read to its end: a writer, which may have slept since, releases its pin.
    """

    read_to_the_end: set[Term] = field(default_factory=set)
    """The terms of such snapshots."""

    def goes_back(self, was: Epoch) -> None:
        self.lost = Version(max(self.lost, was))

    def goes_back_into(self, snapshot: Term) -> None:
        self.read_to_the_end.add(snapshot)
        self.snapshots.pop(snapshot, None)

    def subscribed(self, manifest: Manifest) -> None:
        super().subscribed(manifest)
        for term in self.read_to_the_end:
            self.snapshots.pop(term, None)

    def needs(self) -> Epoch | None:
        newest, oldest = self.own.newest, super().needs()
        read = None if newest is None else self._consumed(newest)
        return oldest if read is None or oldest is None else min(read, oldest)

    def _consumed(self, shown: Manifest) -> Epoch | None:
        at = read_to(shown)
        if at is not None and at.uuid != self._uuid():
            return None
        return self._begins_again() if at is not None and at.epoch == EMPTY else super()._consumed(shown)

    def _begins_again(self) -> Epoch | None:
        """Where it begins whose destination had lost everything: with a snapshot, or where it once subscribed."""
        newest = self.own.newest
        assert newest is not None, "it has read something"
        snapshot = self._pinned(pin_name(backfill_pin(newest.uuid, newest.term)))
        if snapshot is not None:
            return snapshot.epoch
        data = self.upstream.truth.objects.get(name := subscriber_name(newest.uuid))
        return None if data is None else decode_subscriber(data, name).epoch

    def _uuid(self) -> StreamUuid | None:
        return None if self.upstream.newest is None else self.upstream.uuid


def _is_read(at: UpstreamPosition, key: str) -> bool:
    """Whether that key is among the parts of the snapshot that were read."""
    return not at.in_snapshot or int(key) % at.parts < at.part
