"""Facts about a stream that this one reads."""

from dataclasses import dataclass

from dagster_ckpt.errors import CorruptStateError
from dagster_ckpt.ids import EMPTY, Epoch, Version
from dagster_ckpt.protocol.epochs.upstream import FORMAT, UpstreamPosition, decode, trouble
from dagster_ckpt.protocol.manifest.manifest import Manifest, Statistics
from dagster_ckpt.storage.chain.manifest_chain import ManifestChain


@dataclass(frozen=True, slots=True)
class UpstreamInfo:
    """How far the current epoch of a stream is behind another one, `stream`, that it reads.

    `read` is the epoch that it has consumed, 0 before the first, `newest` the current one of the other. `epochs` and
    `rows` (of the change log) are what was committed after `read`; None where that is unknown: the other stream no
    longer has the manifest of `read`, or `ahead`, or `gone`. `in_snapshot`: the table at `read` is not yet read to its
    end, which counts as one epoch and no row. `ahead`: a rollback left behind what was read, or a restore from a backup
    took it away, so the reader stops until it goes back too. `gone`: the other stream is not in the store, or another
    one has its name now.
    """

    stream: str
    read: Epoch
    newest: Epoch
    epochs: int | None
    rows: int | None
    in_snapshot: bool = False
    ahead: bool = False
    gone: bool = False


def positions_of(manifest: Manifest) -> dict[str, UpstreamPosition | None]:
    """The streams that this one reads, by their names, and how far; None: nothing was read yet."""
    return {
        position.source.address: None if position.current is None else decode(position.current)
        for position in manifest.sources
        if position.source.format == FORMAT
    }


def upstream_info(name: str, at: UpstreamPosition | None, chain: ManifestChain) -> UpstreamInfo:
    """The facts about the upstream whose manifests are `chain`, for a reader at this position.

    Raises `CorruptStateError` where its newest manifest is damaged.
    """
    newest, read = chain.newest(), EMPTY if at is None else at.epoch
    if newest is None or (at is not None and newest.uuid != at.uuid):
        return UpstreamInfo(name, read, EMPTY, None, None, gone=True)
    shown = None if read == EMPTY else _manifest_of(chain, newest, read)
    if at is not None and (trouble(newest, at) is not None or (shown is not None and not at.is_at(shown))):
        return UpstreamInfo(name, read, newest.epoch, None, None, ahead=True)
    in_snapshot = at is not None and at.in_snapshot
    then = Statistics() if read == EMPTY else None if shown is None else shown.statistics
    if then is None:
        return UpstreamInfo(name, read, newest.epoch, None, None, in_snapshot)
    now = newest.statistics
    epochs = now.total_epochs - then.total_epochs + in_snapshot
    return UpstreamInfo(name, read, newest.epoch, epochs, now.total_rows_out - then.total_rows_out, in_snapshot)


def _manifest_of(chain: ManifestChain, newest: Manifest, epoch: Epoch) -> Manifest | None:
    """The manifest of an epoch's number; None where it is gone or damaged, or another stream's."""
    try:
        shown = newest if newest.epoch == epoch else chain.find(Version(epoch))
    except CorruptStateError:
        return None
    return shown if shown is not None and shown.uuid == newest.uuid else None
