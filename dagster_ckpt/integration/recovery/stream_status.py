"""The status of one stream in the store: its newest manifest and that term's lease. Only reads.

A sensor checks each stream every few seconds, and usually nothing has changed. So it remembers what it saw last
(`StatusReader`), and first requests the manifest that would come next, and with it the lease of a live writer, or the
mark of changed pins where no writer lives: two requests at rest. A writer whose lease has changed since the last look
has just been at work, so this look reads the mark in place of the manifest; never two looks in a row, because a writer
that was fenced may go on with its lease.

If the next is absent, the remembered one is still the newest, provided that its number was not freed; that takes 16
further manifests and a grace period. So a stream is read in full at least every `FULL_LOOK_MS`; and before the sensor
acts on what it remembers, it reads in full again.
"""

from dataclasses import dataclass, field, replace

import dagster as dg

from dagster_ckpt.clock import Clock
from dagster_ckpt.errors import CorruptStateError, StoreUnavailableError
from dagster_ckpt.history.damage.damage_advice import with_advice
from dagster_ckpt.ids import EMPTY, Epoch, Version
from dagster_ckpt.integration.dagster_names import stream_name_of
from dagster_ckpt.integration.declared.recovery_policy import Recovery
from dagster_ckpt.integration.recovery.sensor_memory import LeaseSeen
from dagster_ckpt.integration.recovery.stream_view import LeaseView, StartView
from dagster_ckpt.protocol.lease import Lease, Watch, judge, next_watch
from dagster_ckpt.protocol.manifest.manifest import Manifest
from dagster_ckpt.protocol.object_names import folder_of
from dagster_ckpt.protocol.transitions.edits import NO_OWNER
from dagster_ckpt.storage.chain.manifest_chain import ManifestChain
from dagster_ckpt.storage.leases.heartbeat import NOT_OPEN, read_lease
from dagster_ckpt.storage.leases.process_identity import is_gone
from dagster_ckpt.storage.retention_refs.pins import pins_mark
from dagster_ckpt.storage.stores.folder import folder_store
from dagster_ckpt.storage.stores.object_store import ObjectStore
from dagster_ckpt.storage.stores.retry import Patience

_PATIENCE = Patience(total_ms=2_000)
"""The next tick comes soon: a store that does not answer must not delay the other streams."""

FULL_LOOK_MS = 300_000
"""How old a remembered status may be. A sensor that was off for longer reads in full."""

_STEPS_MAX = 32
"""Up to this many new manifests are read one by one; with more, a full look finds the newest sooner."""

NO_WRITER = Watch(term=0, counter=0, since_ms=0)  # type: ignore[arg-type]


@dataclass(frozen=True)
class StreamStatus:
    """The newest manifest (None: the stream was never opened) and the lease of its term (None: it has none).

    `remembered`: only manifests after the remembered one were requested; `walked` are those that were read.
    `pins_mark` is the mark of changed pins as last read, `beat_alone` whether no manifest was requested.
    """

    newest: Manifest | None
    lease: Lease | None
    remembered: bool = False
    walked: tuple[Manifest, ...] = ()
    pins_mark: bytes = b""
    beat_alone: bool = False

    @property
    def uuid(self) -> str:
        """The stream's; "" if it was never opened."""
        return "" if self.newest is None else self.newest.uuid

    @property
    def epoch(self) -> Epoch:
        return EMPTY if self.newest is None else self.newest.epoch

    @property
    def newest_committed(self) -> Epoch:
        """The newest epoch that was ever committed, even if a rollback has abandoned it."""
        abandoned = () if self.newest is None else self.newest.abandoned
        return max([self.epoch, *(each.last for each in abandoned)])

    @property
    def dagster_run_id(self) -> str | None:
        """The Dagster run that the newest term's lease names."""
        return None if self.lease is None else self.lease.holder.dagster_run_id

    @property
    def open_lease(self) -> Lease | None:
        """The lease of the newest term, if it is not closed."""
        return None if self.lease is None or self.lease.closed is not None else self.lease

    def has_rolled_back_for(self, root_run_id: str) -> bool:
        """Whether the rollback requested of this Dagster run, or of the root run that it retries, was done."""
        return self.newest is not None and root_run_id in self.newest.rollbacks

    def watch(self, before: LeaseSeen | None, now_ms: int) -> Watch:
        """The watch over the newest term's lease after this look, on the sensor's clock."""
        if self.newest is None:
            return NO_WRITER
        known = before is not None and before.is_held_by(self.dagster_run_id)
        return next_watch(before.lease if before is not None and known else None, self.newest.term, self.lease, now_ms)


def read_status(store: ObjectStore, key: dg.AssetKey, clock: Clock, before: LeaseSeen | None) -> StreamStatus:
    """The status now.

    Raises `StoreUnavailableError` if the store does not answer, and `CorruptStateError` if the newest manifest is
    damaged: neither is a verdict.
    """
    folder = folder_store(store, folder_of(key.path))
    chain = ManifestChain(folder, clock, _PATIENCE)
    try:
        newest = chain.newest()
    except CorruptStateError as error:
        raise with_advice(store, chain, stream_name_of(key), error) from error
    if newest is not None:
        return StreamStatus(newest, read_lease(folder, newest.term))
    if before is not None and before.term > 0:
        raise StoreUnavailableError(
            "the stream has disappeared: is the store's disk mounted? Reset the sensor's cursor if it was deleted on "
            f"purpose. store={folder.url}, term={before.term}"
        )
    return StreamStatus(None, None)


@dataclass
class StatusReader:
    """The last status of each stream, in the memory of one process. If it is lost, each is read in full once.

    Different streams may be read in parallel, one stream only sequentially.
    """

    clock: Clock
    _seen: dict[str, tuple[int, StreamStatus]] = field(default_factory=dict, init=False)

    def read_status(self, store: ObjectStore, key: dg.AssetKey, before: LeaseSeen | None) -> StreamStatus:
        """The status now, with as few requests as possible. Raises as `read_status` does."""
        name, now_ms = _place(store, key), self.clock.now_ms()
        # Removed: what follows may raise, and then the next look is a full one.
        full_ms, last = self._seen.pop(name, (0, None))
        status = None
        if last is not None and 0 <= now_ms - full_ms <= FULL_LOOK_MS:
            status = _look_on(store, key, self.clock, last)
        if status is None:
            full_ms, status = now_ms, read_status(store, key, self.clock, before)
            status = status if last is None else replace(status, pins_mark=last.pins_mark)
        self._seen[name] = full_ms, replace(status, walked=())
        return status

    def read_status_in_full(self, store: ObjectStore, key: dg.AssetKey, before: LeaseSeen | None) -> StreamStatus:
        """The status now, without what was remembered."""
        self._seen.pop(_place(store, key), None)
        return self.read_status(store, key, before)


def open_chain(store: ObjectStore, key: dg.AssetKey, clock: Clock) -> ManifestChain:
    """The stream's manifests, with a tick's patience."""
    return ManifestChain(folder_store(store, folder_of(key.path)), clock, _PATIENCE)


def read_start(store: ObjectStore, key: dg.AssetKey, run_id: str) -> Lease | None:
    """The heartbeat of this Dagster run before it opens the stream; None where there is none, or it has ended."""
    lease = read_lease(folder_store(store, folder_of(key.path)), NOT_OPEN)
    mine = lease is not None and lease.holder.dagster_run_id == run_id and lease.closed is None
    return lease if mine else None


def start_view(lease: Lease | None, since_ms: int, now_ms: int, recovery: Recovery) -> StartView | None:
    """That heartbeat as the decision sees it, unchanged since `since_ms`."""
    if lease is None:
        return None
    watch = Watch(NOT_OPEN, lease.counter, since_ms)
    gone = is_gone(lease.holder.process)
    life = judge(watch, lease, now_ms, recovery.lease_timeout_ms, process_is_gone=gone)
    return StartView(life, now_ms - since_ms)


def _place(store: ObjectStore, key: dg.AssetKey) -> str:
    return f"{store.url} {folder_of(key.path)}"


def _look_on(store: ObjectStore, key: dg.AssetKey, clock: Clock, last: StreamStatus) -> StreamStatus | None:
    """The status, read from the last one on; None where a full look is needed."""
    newest = last.newest
    if newest is None:
        return None
    folder = folder_store(store, folder_of(key.path))
    beat = None
    if not last.beat_alone and (seen := last.open_lease) is not None:
        beat = read_lease(folder, newest.term)
        if beat is not None and beat.closed is None and beat.counter != seen.counter:
            return StreamStatus(newest, beat, remembered=True, pins_mark=pins_mark(folder), beat_alone=True)
    chain = ManifestChain(folder, clock, _PATIENCE)
    walked: list[Manifest] = []
    for _ in range(_STEPS_MAX):
        try:
            following = chain.find(Version(newest.version + 1))
        except CorruptStateError:
            return None
        if following is None:
            closed = last.lease is not None and last.lease.term == newest.term and last.lease.closed is not None
            known = last.lease if closed else beat
            lease = known if known is not None and known.term == newest.term else read_lease(folder, newest.term)
            lives = lease is not None and lease.closed is None
            mark = last.pins_mark if lives else pins_mark(folder)
            return StreamStatus(newest, lease, remembered=True, walked=tuple(walked), pins_mark=mark)
        newest = following
        walked.append(following)
    return None


def lease_view(
    status: StreamStatus, watch: Watch, now_ms: int, recovery: Recovery, instance_id: str
) -> LeaseView | None:
    """The newest term's lease as the decision sees it; None for a stream that was never opened, as a fork at first."""
    if status.newest is None or status.newest.owner == NO_OWNER:
        return None
    lease = status.lease
    gone = lease is not None and is_gone(lease.holder.process)
    writer = status.newest.owner.instance if lease is None else lease.holder.instance
    return LeaseView(
        term=status.newest.term,
        life=judge(watch, lease, now_ms, recovery.lease_timeout_ms, process_is_gone=gone),
        ours=writer == instance_id,
        silent_ms=now_ms - watch.since_ms,
        interrupted=lease is not None and lease.interrupted,
        gone=gone,
    )
