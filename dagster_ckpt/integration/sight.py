"""What the store says about one stream: its newest manifest and that term's lease. Only reads."""

from dataclasses import dataclass

import dagster as dg

from dagster_ckpt.clock import Clock
from dagster_ckpt.errors import CorruptStateError, StoreUnavailableError
from dagster_ckpt.history.damage import advised
from dagster_ckpt.ids import EMPTY, Epoch
from dagster_ckpt.integration.names import stream_name_of
from dagster_ckpt.integration.recovery import LeaseView, Recovery
from dagster_ckpt.integration.watching import Seen
from dagster_ckpt.protocol.edits import NOBODY
from dagster_ckpt.protocol.lease import Lease, Watch, judged, watched
from dagster_ckpt.protocol.manifest import Manifest
from dagster_ckpt.protocol.names import folder_of
from dagster_ckpt.storage.chain import ManifestChain
from dagster_ckpt.storage.folder import folder_store
from dagster_ckpt.storage.leases import read_lease
from dagster_ckpt.storage.object_store import ObjectStore
from dagster_ckpt.storage.patience import Patience
from dagster_ckpt.storage.processes import is_gone

_PATIENCE = Patience(total_ms=2_000)
"""The next tick comes soon: a store that does not answer must not hold up the other streams."""

_NOBODY = Watch(term=0, counter=0, since_ms=0)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Sight:
    """The newest manifest (None: the stream was never opened) and the lease of its term (None: it has none)."""

    newest: Manifest | None
    lease: Lease | None

    @property
    def epoch(self) -> Epoch:
        return EMPTY if self.newest is None else self.newest.epoch

    @property
    def committed(self) -> Epoch:
        """The newest epoch that was ever committed, also where a rollback has left it behind."""
        left_behind = () if self.newest is None else self.newest.abandoned
        return max([self.epoch, *(each.last for each in left_behind)])

    @property
    def dagster_run_id(self) -> str | None:
        """The Dagster run that the newest term's lease names."""
        return None if self.lease is None else self.lease.holder.dagster_run_id

    def has_rolled_back_for(self, root_run_id: str) -> bool:
        """Whether a rollback that this Dagster run, or the one it stems from, was told to do was done."""
        return self.newest is not None and root_run_id in self.newest.rollbacks

    def watch(self, before: Seen | None, now_ms: int) -> Watch:
        """The watch over the newest term's lease after this look, on the sensor's own clock."""
        if self.newest is None:
            return _NOBODY
        return watched(None if before is None else before.lease, self.newest.term, self.lease, now_ms)


def look(store: ObjectStore, key: dg.AssetKey, clock: Clock, before: Seen | None) -> Sight:
    """What the store says now.

    Raises `StoreUnavailableError` where it does not answer, and `CorruptStateError` where the newest manifest is
    damaged: neither is a verdict.
    """
    folder = folder_store(store, folder_of(key.path))
    chain = ManifestChain(folder, clock, _PATIENCE)
    try:
        newest = chain.newest()
    except CorruptStateError as error:
        raise advised(store, chain, stream_name_of(key), error) from error
    if newest is not None:
        return Sight(newest, read_lease(folder, newest.term))
    if before is not None and before.term > 0:
        raise StoreUnavailableError(
            "the stream was there and is not any more: is the store's disk mounted? Reset the sensor's cursor if it "
            f"was deleted on purpose. store={folder.url}, term={before.term}"
        )
    return Sight(None, None)


def lease_view(sight: Sight, watch: Watch, now_ms: int, recovery: Recovery, instance_id: str) -> LeaseView | None:
    """The newest term's lease as the decision sees it; None for a stream that was never opened, as a fork at first."""
    if sight.newest is None or sight.newest.owner == NOBODY:
        return None
    lease = sight.lease
    gone = lease is not None and is_gone(lease.holder.process)
    writer = sight.newest.owner.instance if lease is None else lease.holder.instance
    return LeaseView(
        term=sight.newest.term,
        life=judged(watch, lease, now_ms, recovery.lease_timeout_ms, process_is_gone=gone),
        ours=writer == instance_id,
        silent_ms=now_ms - watch.since_ms,
        interrupted=lease is not None and lease.interrupted,
        gone=gone,
    )
