"""The epochs of an upstream that a stream has not consumed."""

from dagster_ckpt.clock import Clock
from dagster_ckpt.ids import EMPTY
from dagster_ckpt.protocol.epochs.lineage import lineage
from dagster_ckpt.protocol.epochs.upstream import UpstreamPosition, decode, following_count
from dagster_ckpt.protocol.manifest.manifest import Manifest
from dagster_ckpt.runtime.lag.lag import SourceLag
from dagster_ckpt.storage.chain.manifest_chain import ManifestChain
from dagster_ckpt.storage.holders.upstream_log import UpstreamLog
from dagster_ckpt.storage.stores.folder import stream_folder
from dagster_ckpt.storage.stores.object_store import ObjectStore


class UpstreamWatch:
    """One upstream, by its name, in the store `root`. Reads its newest manifest with each call."""

    def __init__(self, root: ObjectStore, name: str, clock: Clock) -> None:
        self._log = UpstreamLog(ManifestChain(stream_folder(root, name), clock), name)

    def lag(self, offset: str | None) -> SourceLag:
        """The lag of a reader whose committed offset is this one, None at the beginning. Raises what reading raises."""
        return epochs_behind(self._log.newest(), None if offset is None else decode(offset))


def epochs_behind(newest: Manifest, at: UpstreamPosition | None) -> SourceLag:
    """What the upstream with this newest manifest has for a reader at `at`, None at the beginning.

    Exact within the epochs that the upstream retains. Below them its openings count as epochs, and the time is that of
    the oldest retained one. A snapshot that is being read counts as one epoch.
    """
    entries = lineage(newest)
    if newest.epoch == EMPTY or not entries:
        return SourceLag(epochs=0)
    if at is None or at.epoch == EMPTY:
        return SourceLag(epochs=newest.statistics.total_epochs, since_ms=entries[0].time_ms)
    unread = [entry for entry in entries if entry.epoch > at.epoch]
    retired = following_count(newest, at.epoch, entries[0].epoch)
    epochs = len(unread) + retired + at.in_snapshot
    oldest = unread[0] if unread else entries[-1]
    return SourceLag(epochs=epochs, since_ms=oldest.time_ms if epochs else None)
