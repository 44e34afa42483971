"""A stream that reads another stream of its world: what it does beside being one, and who judges that.

Its table is what its upstream's sums are: of a keyed upstream its table, of an append-only one the sums of its rows.
"""

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from dagster_ckpt.errors import IncompatibleStateError, StoreUnavailableError
from dagster_ckpt.ids import EMPTY, Epoch, Term, Version
from dagster_ckpt.protocol.epochs.lineage import is_abandoned, lineage
from dagster_ckpt.protocol.epochs.upstream import FORMAT, Reader, UpstreamPosition, backfill_pin, decode, next_part
from dagster_ckpt.protocol.manifest.codec import CHANGES
from dagster_ckpt.protocol.manifest.manifest import Manifest, ManifestKind, RunRef, SourceIdentity, SourcePosition
from dagster_ckpt.protocol.object_names import pin_name, subscriber_name
from dagster_ckpt.runtime.declared.sources import StreamSource
from dagster_ckpt.runtime.upstreams.upstreams import Upstreams
from dagster_ckpt.storage.chain.indexed_lists import IndexedLists
from dagster_ckpt.storage.retention_refs.ancestors import with_ancestors
from dagster_ckpt.storage.retention_refs.upstream_log import NothingFollowsError, UpstreamLog, snapshot_at
from dagster_ckpt.storage.stores.object_store import ObjectMissingError, ObjectStore
from dagster_ckpt.storage.writer.stream_writer import StreamWriter
from tests.simulation import decoded
from tests.simulation.driver import Driver
from tests.simulation.job import TABLE, Sums, consumed, decode_rows, decode_sums, shard_of, shown, sums_after
from tests.simulation.oracle import BrokenPromiseError, Oracle
from tests.simulation.tasks import Inflow

if TYPE_CHECKING:
    from tests.simulation.scheduler import Process
    from tests.simulation.stream import SimulatedStream

EPOCHS_MAX = (1, 1, 2)
"""As many epochs of the upstream make one of the reader's, at most: of one driver so, of the next so."""
PARTS = (1, 2, 3, 4)
"""In how many parts a snapshot is read."""
IDLE_MS = 2_000


def identity_of(upstream: str) -> SourceIdentity:
    return SourceIdentity(FORMAT, upstream, (("read", "table"),))


def read_to(manifest: Manifest) -> UpstreamPosition | None:
    """How far the shown epoch has read its upstream; None: nothing of it."""
    text = manifest.sources[0].current if manifest.sources else None
    return None if text is None else decode(text)


@dataclass(frozen=True)
class Plan:
    """What an epoch reads: files of the upstream, and where the source stands after it.

    Beside a file of a snapshot is the reference that says what of it is shown. `part` of `parts`: only the keys of that
    part, and the table is still empty of them.
    """

    files: tuple[tuple[str, RunRef | None], ...]
    appends: bool
    after: SourcePosition
    part: int = 0
    parts: int = 1

    def changed(self, before: Sums, shard: int, shards: int, read: Callable[[str], bytes]) -> Sums:
        """What this shard's keys have after it, as far as it is new."""
        found: Sums = {}
        for name, run in self.files:
            rows = decode_rows(read(name)) if self.appends else _sums(run, read(name)).items()
            for key, amount in rows:
                if shard_of(key, shards) != shard or int(key) % self.parts != self.part:
                    continue
                was = found.get(str(key), before.get(str(key), 0)) if self.appends else 0
                found[str(key)] = was + amount
        return found


class ReadingDriver(Driver):
    """Makes an epoch of what its upstream has committed since the last."""

    upstreams: Upstreams
    plan: Plan | None = None

    @property
    def upstream(self) -> "SimulatedStream":
        assert self.stream.upstream is not None
        return self.stream.upstream

    def begin(self, writer: StreamWriter) -> None:
        super().begin(writer)
        source = StreamSource(identity_of(self.upstream.name), 0, (0,), reads_files=False)
        root = self.world.root_of(self.process)
        self.upstreams = Upstreams(self.stream.name, [source], root, self.chain)
        self.judged(lambda: self.upstreams.prepare(writer.manifest))
        self.reading.subscribed(writer.manifest)

    @property
    def reading(self) -> "Reading":
        assert self.stream.reading is not None
        return self.stream.reading

    def judged(self, look: Callable[[], None]) -> None:
        """Look for trouble, and whether there may be any."""
        began_ms = self.world.scheduler.now_ms
        try:
            look()
        except IncompatibleStateError as error:
            mine, at = self.writer.manifest, read_to(self.writer.manifest)
            if self.stream.oracle.created_ms.get(Version(mine.version + 1), began_ms) < began_ms:
                raise BrokenPromiseError("who was overtaken is told so", f"{mine.version}: {error}") from error
            if self.stream.oracle.newest == mine and at is not None and "no longer keeps" in str(error):
                if at.epoch >= self.reading.lost and self.upstream.oracle.has_epoch(at):
                    raise BrokenPromiseError(
                        "who is not too far behind can go on", f"{mine.version} at {at}"
                    ) from error
                self.stream.oracle.counts["cut off"] += 1
            if "restored from a backup" in str(error):
                self.stream.oracle.counts["stopped: diverged"] += 1
                if at is None or (self.upstream.oracle.has_epoch(at) and self.stream.oracle.newest == mine):
                    raise BrokenPromiseError("who can go on is told of no restore", f"{mine.version}") from error
            if at is not None and self.stream.oracle.newest == mine and "somebody has unpinned" in str(error):
                if self.reading.has_lost(at.epoch):
                    raise
                raise BrokenPromiseError("a snapshot stays for who can go back into it", f"{mine.version}") from error
            raise

    def finish(self) -> None:
        while True:
            self.make_epoch()
            if self.plan is None:
                return

    def make_epoch(self) -> None:
        try:
            self.plan = self.planned()
        except NothingFollowsError:
            self.judged(lambda: self.upstreams.check(self.writer.manifest))
            raise StoreUnavailableError("what was not there is there again: start again") from None
        if self.plan is None:
            self.writer.check_term()
            self.clock.sleep_ms(IDLE_MS)
            return
        super().make_epoch()
        self.upstreams.on_commit(self.writer.manifest)

    def next_position(self) -> tuple[int, SourcePosition]:
        assert self.plan is not None
        batch = self.writer.manifest.batch_id
        return 0 if batch is None else batch + 1, self.plan.after

    def upstream_files(self, process: "Process") -> ObjectStore:
        """The files of the upstream, and of those in whose place it has gone on."""
        newest = self.upstream.oracle.newest
        ancestors = () if newest is None else newest.ancestors
        return with_ancestors(self.upstream.store_of(process), self.world.root_of(process), ancestors)

    def inflow(self, executor: "Process") -> Inflow | None:
        plan, store = self.plan, self.upstream_files(executor)
        assert plan is not None

        def read(name: str) -> bytes:
            try:
                return store.get(name)
            except ObjectMissingError:
                # Whether it could go the oracle knows; whether anything follows, the next try.
                raise StoreUnavailableError(f"a file of the upstream is gone: start again. file={name}") from None

        return lambda before, shard, shards: plan.changed(before, shard, shards, read)

    def planned(self) -> Plan | None:
        """The next part of the snapshot, or the next epochs; None where there is nothing new."""
        chain = self.upstream.chain_of(self.process)
        log = UpstreamLog(chain, self.upstream.name)
        mine = self.writer.manifest
        at = read_to(mine) or UpstreamPosition(log.newest().uuid)
        if at.epoch == EMPTY or at.in_snapshot:
            snapshot = snapshot_at(chain, at, Reader.of(mine))
            if snapshot is not None:
                after = next_part(at, snapshot, mine.term)
                if at.epoch == EMPTY:
                    after = replace(after, parts=self.chance.choice(PARTS))
                files = _files_of_table(self, snapshot)
                return Plan(files, snapshot.pipeline.appends, self._after(after), after.part - 1, after.parts)
        following = log.following(at, EPOCHS_MAX[self.process.number % len(EPOCHS_MAX)])
        if not following:
            return None
        files = tuple((change.path, None) for manifest in following for change in manifest.changes)
        position = self._after(UpstreamPosition.after(following[-1]))
        return Plan(files, following[-1].pipeline.appends, position)

    def _after(self, at: UpstreamPosition) -> SourcePosition:
        before = self.writer.manifest.sources
        return SourcePosition(identity_of(self.upstream.name), at.encode(), before[0].current if before else None)


def _sums(run: RunRef | None, data: bytes) -> Sums:
    sums = decode_sums(data)
    return sums if run is None else shown(run, sums)


def _files_of_table(driver: ReadingDriver, snapshot: Manifest) -> tuple[tuple[str, RunRef | None], ...]:
    """The files that a table is made of, oldest first."""
    if snapshot.pipeline.tables:
        return tuple((run.name, run) for runs in snapshot.runs[TABLE] for run in reversed(runs))
    store = driver.upstream_files(driver.process)
    lists = IndexedLists(store, CHANGES, driver.clock, driver.character.patience)
    return tuple((change.name, None) for change in lists.entries(snapshot.files))


@dataclass
class ReadingOracle(Oracle):
    """Judges a stream that reads another: its table is what a prefix of the upstream's committed epochs gives."""

    upstream: Oracle = field(init=False)
    reading: "Reading" = field(init=False)
    tables: dict[Epoch, Sums] = field(default_factory=dict)

    def knowledge(self) -> dict[str, Any]:
        return {**super().knowledge(), "tables": copy(self.tables)}

    def _consumed_the_next_batch(self, before: Manifest | None, manifest: Manifest) -> None:
        at = read_to(manifest)
        if manifest.kind is not ManifestKind.EPOCH or at is None:
            return
        self.counts["parts of snapshots read" if at.parts else "logs read"] += 1
        shown = self.upstream.with_epoch(at).history.get(Version(at.epoch))
        if at.epoch != EMPTY and (shown is None or not shown.kind.makes_epoch):
            raise BrokenPromiseError("only committed epochs are read", f"{manifest.version} has read {at}")
        was = None if before is None else read_to(before)
        if was is not None and was == at:
            raise BrokenPromiseError("each epoch reads on", f"{manifest.version} has read {at}, as before")

    def sums_of(self, manifest: Manifest) -> Sums:
        at = read_to(manifest)
        if at is None or at.epoch == EMPTY:
            return {}
        sums = sums_after(consumed(self.upstream.with_epoch(at).history[Version(at.epoch)]))
        return {key: total for key, total in sums.items() if not at.in_snapshot or int(key) % at.parts < at.part}

    def _shows_a_prefix(self, manifest: Manifest) -> None:
        at, table = read_to(manifest), self._table(manifest)
        # What is shown again may be of an upstream's epoch that a restore has taken away since.
        wanted = self.tables[manifest.epoch] if manifest.epoch in self.tables else self.sums_of(manifest)
        self.tables[manifest.epoch] = wanted
        if table != wanted:
            raise BrokenPromiseError(
                "a table is what a prefix of the upstream gives", f"{manifest.version}: {table} at {at}, not {wanted}"
            )

    def has_its_upstreams_table(self) -> None:
        """In the end its table is the newest one of its upstream."""
        newest, upstream = self.newest, self.upstream.newest
        assert newest is not None, "a stream ends with an epoch"
        assert upstream is not None, "a stream ends with an epoch"
        at = read_to(newest)
        if at is None or at.epoch < upstream.epoch:
            return  # its upstream has gone on since
        if self._table(newest) != sums_after(consumed(upstream)):
            raise BrokenPromiseError("a reader has its upstream's table in the end", f"{newest.version} at {at}")

    def _becomes_the_newest(self, before: Manifest | None, manifest: Manifest) -> None:
        super()._becomes_the_newest(before, manifest)
        at = read_to(manifest)
        if manifest.kind is ManifestKind.ROLLBACK and at is None:
            self.reading.begin_anew()
        if manifest.kind is ManifestKind.ROLLBACK and at is not None and at.in_snapshot:
            self.counts["went back into a snapshot"] += 1
        self.reading.look()


@dataclass
class Reading:
    """What a stream may expect of its upstream: the log behind what it has consumed for good, from its subscription on.

    But no more than `max_lag` epochs of it, and nothing once what it has read is further behind than that. `beginning`
    is where it begins that has consumed nothing, as its writer of that `term` has said, `snapshots` what those of each
    term begin with. `lost` is up to where the log is no longer promised.
    """

    own: Oracle
    upstream: Oracle
    max_lag: int
    beginning: Epoch | None = None
    term: Term | None = None
    snapshots: dict[Term, Manifest] = field(default_factory=dict)
    lost: Version = field(default=Version(0))
    forgotten: bool = False
    """Whether a restore took its subscription away. Nothing is promised until its next writer has subscribed again."""

    def subscribed(self, manifest: Manifest) -> None:
        """A writer of the stream has made sure that it can go on from its manifest."""
        at = read_to(manifest)
        if self.own.newest != manifest or (at is not None and not at.in_snapshot):
            return
        self.term = manifest.term
        begins = UpstreamPosition(manifest.uuid) if at is None else at
        snapshot = self._pinned(pin_name(Reader.of(manifest).pin_at(begins)))
        if snapshot is not None:
            self.snapshots[begins.term if begins.in_snapshot else manifest.term] = snapshot
        if at is None:
            self.beginning = EMPTY if snapshot is None else snapshot.epoch
            if self.upstream.newest is not None and self.upstream.newest.epoch == EMPTY:
                self.lost = max(self.lost, self.upstream.newest.version)  # openings: no epoch lies among them

    def upstream_recreated(self, upstream: Oracle) -> None:
        """Another stream has the upstream's name and folder now, with files of the same names: it owes nothing yet."""
        self.upstream = upstream
        self.beginning, self.term, self.snapshots, self.lost = None, None, {}, Version(0)

    def upstream_restored(self, upstream: Oracle) -> None:
        """Of what one of the two folders has lost, or freed since it was backed up, nothing is promised."""
        self.upstream = upstream
        lost = Version(len(upstream.history) + 1)
        self.beginning, self.term, self.snapshots, self.lost = None, None, {}, lost
        self.forgotten = True

    def begin_anew(self) -> None:
        """It went back to before all that it had read."""
        self.beginning = None

    def needs(self) -> Epoch | None:
        """All behind this epoch; None: it has not said yet."""
        newest = self.own.newest
        if newest is None:
            return None
        entries = lineage(newest)
        return self._consumed(self.own.history[entries[0].version] if entries else newest)

    def kept_behind(self) -> Epoch | None:
        """All behind this epoch is kept for it, where it is not too far behind; None: it has not said yet."""
        newest, needs = self.upstream.newest, self.needs()
        if newest is None or needs is None:
            return None
        # What was freed while it was not promised stays so. Whether it was promised is asked when it is freed.
        return max(needs, Epoch(newest.epoch - self.max_lag), Epoch(len(self.upstream.freed) + 1))

    def _consumed(self, shown: Manifest) -> Epoch | None:
        at = read_to(shown)
        if at is not None:
            return at.epoch
        return self.beginning if self._has_begun(self.own.newest) else None

    def is_too_far_behind(self) -> bool:
        newest, own = self.upstream.newest, self.own.newest
        read = None if own is None else self._consumed(own)
        return newest is not None and read is not None and newest.epoch - read > self.max_lag

    def look(self) -> None:
        """Somebody has committed: the log may be gone from now on."""
        newest = self.upstream.newest
        if newest is not None:
            is_cut_off = self._is_forgotten() or self.is_too_far_behind()
            gone = newest.version if is_cut_off else Version(newest.epoch - self.max_lag)
            self.lost = max(gone, self.lost)

    def needs_log_of(self, version: Version) -> bool:
        needs, newest = self.needs(), self.upstream.newest
        if needs is None or newest is None or self._is_forgotten():
            return False
        if is_abandoned(newest, needs) or self._has_diverged():
            return False  # behind what was left behind nothing follows: it has to go back, or to begin anew
        return version > max(needs, self.lost) and not is_abandoned(newest, version)

    def _is_forgotten(self) -> bool:
        newest = self.own.newest
        if self.forgotten and newest is not None:
            self.forgotten = subscriber_name(newest.uuid) not in self.upstream.truth.objects
        return self.forgotten

    def _has_diverged(self) -> bool:
        """Whether it has read what a restore has taken away from its upstream."""
        at = None if self.own.newest is None else read_to(self.own.newest)
        return at is not None and not self.upstream.has_epoch(at)

    def needs_file(self, name: str) -> bool:
        """Whether it is one of a snapshot that is being read, or that it can go back into."""
        needed = (self.snapshots[term] for term in self._terms_needed() if term in self.snapshots)
        return any(name in self.upstream.files_of(each) for each in needed if not self.has_lost(each.epoch))

    def released(self, pin: str) -> None:
        """A pin is removed: a snapshot that was read to its end cannot be read again, though a destination goes back.

        `pin` is the object's name.
        """
        for term in self.snapshots.keys() - self._terms_needed():
            if pin == pin_name(backfill_pin(self.own.uuid, term)):
                del self.snapshots[term]

    def _terms_needed(self) -> set[Term]:
        """The terms of the snapshots that it reads, can go back into, or will begin with."""
        newest, terms = self.own.newest, set(self.in_midst().values())
        if newest is not None and read_to(newest) is None and self._has_begun(newest):
            terms.add(newest.term)
        return terms

    def needs_pin(self, name: str) -> bool:
        """Whether it holds a snapshot in whose midst an epoch is that it can go back to."""
        newest, terms = self.own.newest, self.in_midst().values()
        kept = (term for term in terms if term in self.snapshots and not self.has_lost(self.snapshots[term].epoch))
        return newest is not None and name in {pin_name(backfill_pin(newest.uuid, term)) for term in kept}

    def has_lost(self, epoch: Epoch) -> bool:
        """Whether the log behind that epoch is no longer promised, and with it a snapshot of it."""
        return epoch < self.lost

    def in_midst(self) -> dict[Epoch, Term]:
        """Of the epochs that it can go back to, those in the midst of a snapshot, and the term of its pin."""
        newest = self.own.newest
        entries = () if newest is None else lineage(newest)
        at = {entry.epoch: read_to(self.own.history[entry.version]) for entry in entries}
        return {epoch: each.term for epoch, each in at.items() if each is not None and each.in_snapshot}

    def _has_begun(self, newest: Manifest | None) -> bool:
        """Whether its live writer has said with what it begins. One of a later term pins another snapshot."""
        return newest is not None and newest.term == self.term

    def _pinned(self, name: str) -> Manifest | None:
        data = self.upstream.truth.objects.get(name)
        return None if data is None else decoded.a_pin(data, name).manifest
