"""The question before a rollback, with its consequences."""

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime

from dagster_ckpt.cli.output import amounts
from dagster_ckpt.errors import CorruptStateError
from dagster_ckpt.history import EpochInfo, StreamHistory


def rollback(history: StreamHistory, epoch: int) -> str:
    """What a rollback abandons, and which streams it stops. Raises `InvalidPipelineError` if it is impossible."""
    readers = _readers_past(history, epoch)
    stops = f" Streams that have read them stop until you roll them back too: {', '.join(readers)}." if readers else ""
    what = f"Roll back to {_when(history, epoch)}" if epoch else f"Empty {history.name}"
    return f"{what}? Later epochs are abandoned; their rows are read again from the sources.{stops}"


def together(streams: Sequence[str], as_of: datetime | None, pin: str | None) -> str:
    """What it means to take several streams back."""
    moment = amounts.moment(as_of) + " UTC" if as_of is not None else f"the pin {pin}"
    return (
        f"Roll back {', '.join(streams)} to {moment}? Later epochs are abandoned; their rows are read again from the "
        "sources. Other streams that have read them stop until you roll them back too."
    )


def _when(history: StreamHistory, epoch: int) -> str:
    named = f"epoch {epoch} of {history.name}"
    info = _info(history, epoch)
    if info is not None:
        # An abandoned epoch can be readable and yet no target of a rollback.
        with suppress(CorruptStateError):  # of the newest manifest: the rollback repairs it
            history.check_can_go_back(epoch)
    return named if info is None else f"{named}, committed {amounts.moment(info.committed_at)} UTC"


def _info(history: StreamHistory, epoch: int) -> EpochInfo | None:
    try:
        return history.info(epoch)
    except CorruptStateError:
        return None  # the rollback repairs damage, and checks the target itself


def _readers_past(history: StreamHistory, epoch: int) -> list[str]:
    try:
        return [each.stream for each in history.subscribers() if each.read > epoch and not each.gone]
    except CorruptStateError:
        return []
