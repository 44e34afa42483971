"""What somebody should know who is asked whether history is to be changed."""

from contextlib import suppress

from dagster_ckpt.cli.output import amounts
from dagster_ckpt.errors import CorruptStateError
from dagster_ckpt.history import EpochInfo, StreamHistory
from dagster_ckpt.storage.writer.opening import check_can_go_back


def rollback(history: StreamHistory, epoch: int) -> str:
    """What going back leaves behind, and whom it stops. Raises `InvalidPipelineError` where it cannot go back there."""
    readers = _stopped(history, epoch)
    stops = f" Streams that have read them stop until they go back too: {', '.join(readers)}." if readers else ""
    what = f"Go back to {_when(history, epoch)}" if epoch else f"Empty {history.name}"
    return f"{what}? Later epochs are left behind; their rows are read again from the sources.{stops}"


def _when(history: StreamHistory, epoch: int) -> str:
    named = f"epoch {epoch} of {history.name}"
    info = _info(history, epoch)
    if info is not None:
        # A pinned epoch, or one that a rollback left behind, can be read and not gone back to.
        with suppress(CorruptStateError):  # of the newest manifest: going back is the way out
            check_can_go_back(history.manifest(), epoch)
    return named if info is None else f"{named}, committed {amounts.moment(info.committed_at)} UTC"


def _info(history: StreamHistory, epoch: int) -> EpochInfo | None:
    try:
        return history.info(epoch)
    except CorruptStateError:
        return None  # going back is the way out of damage: whether it leads there, it finds out itself


def _stopped(history: StreamHistory, epoch: int) -> list[str]:
    try:
        return [each.stream for each in history.subscribers() if each.read > epoch and not each.gone]
    except CorruptStateError:
        return []
