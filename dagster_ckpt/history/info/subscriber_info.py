"""Facts about a stream that reads another one."""

from dataclasses import dataclass

from dagster_ckpt.ids import Epoch
from dagster_ckpt.protocol.epochs.lineage import is_abandoned
from dagster_ckpt.protocol.manifest.manifest import Manifest
from dagster_ckpt.storage.retention_refs.subscribers import SubscriberProgress


@dataclass(frozen=True, slots=True)
class SubscriberInfo:
    """How far a stream, `stream`, has read another one; all in epochs of that one.

    `read` is what its current epoch has consumed, and `lag` how far that is behind, counted by epoch numbers. The
    change log is kept for it from `kept_from` on, because the oldest epoch that it may go back to needs it:
    `kept_epochs` numbers more than are retained anyway. `cut_off`: what it would read next is gone, and it must be
    backfilled. `ahead`: a rollback left behind what it has read, so it stops until it goes back too. `gone`: its stream
    is not in the store, or another one has its name now.
    """

    stream: str
    uuid: str
    read: Epoch
    lag: int
    kept_from: Epoch
    kept_epochs: int
    cut_off: bool
    gone: bool
    ahead: bool = False


def subscriber_info(progress: SubscriberProgress, newest: Manifest, *, cut_off: bool) -> SubscriberInfo:
    """The facts about a reader of the stream whose newest manifest this is."""
    oldest = min((entry.epoch for entry in newest.retained), default=newest.epoch)
    return SubscriberInfo(
        stream=progress.subscriber.stream,
        uuid=progress.subscriber.uuid,
        read=progress.read,
        lag=max(0, newest.epoch - progress.read),
        kept_from=progress.consumed,
        kept_epochs=max(0, oldest - progress.consumed),
        cut_off=cut_off,
        gone=progress.gone,
        ahead=is_abandoned(newest, progress.read),
    )
