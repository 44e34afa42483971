"""Which retained epoch is meant: by number, by time, or the current one. Pure: it only looks at the newest manifest."""

from datetime import UTC, datetime

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.history.info.epoch_info import moment_of
from dagster_ckpt.ids import EMPTY
from dagster_ckpt.protocol.epochs.lineage import is_abandoned, lineage, ranges
from dagster_ckpt.protocol.manifest.manifest import Manifest, Retained


def choose(newest: Manifest, epoch: int | None = None, as_of: datetime | str | None = None) -> Retained:
    """The retained epoch that is meant. Raises `InvalidPipelineError`, which lists what is retained."""
    if epoch is not None and as_of is not None:
        raise InvalidPipelineError(
            f"give an epoch or a time, not both. epoch={epoch}, as_of={as_of}, stream={newest.stream!r}"
        )
    if as_of is not None:
        return epochs_at(newest, as_of)[-1]
    wanted = newest.epoch if epoch is None else epoch
    for retained in newest.retained:
        if retained.epoch == wanted:
            return retained
    if wanted == newest.epoch == EMPTY:
        return Retained(EMPTY, newest.version, newest.time_ms)  # opened, and nothing committed yet
    raise InvalidPipelineError(
        f"{_why_not(newest, wanted)}. epoch={wanted}, current={newest.epoch}, retained={_epoch_list(newest)}, "
        f"stream={newest.stream!r}"
    )


def epochs_at(newest: Manifest, as_of: datetime | str) -> list[Retained]:
    """The retained epochs that had been committed by then, oldest first. Raises `InvalidPipelineError` for none."""
    time = time_of(as_of)
    # Not what a rollback left behind: a time must not bring back the rows that it was to remove.
    by_then = [retained for retained in lineage(newest) if moment_of(retained.time_ms * 1_000) <= time]
    if by_then:
        return sorted(by_then, key=lambda retained: retained.epoch)
    oldest = min(lineage(newest), key=lambda retained: retained.epoch, default=None)
    first = "none" if oldest is None else f"{oldest.epoch} ({moment_of(oldest.time_ms * 1_000).isoformat()})"
    raise InvalidPipelineError(
        f"no retained epoch had been committed by then: ask for a later time, or keep more epochs with `retained`. "
        f"as_of={time.isoformat()}, oldest={first}, stream={newest.stream!r}"
    )


def time_of(as_of: datetime | str) -> datetime:
    """A naive time is taken as UTC: the same call must mean the same on every machine.

    Raises `InvalidPipelineError` for a text that is no time.
    """
    if isinstance(as_of, str):
        try:
            as_of = datetime.fromisoformat(as_of)
        except ValueError:
            raise InvalidPipelineError(
                f"not a time: write it as 2013-01-05T12:00:00 (UTC) or with an offset, 2013-01-05T12:00:00+01:00. "
                f"as_of={as_of!r}"
            ) from None
    return as_of.replace(tzinfo=UTC) if as_of.tzinfo is None else as_of


def _why_not(newest: Manifest, wanted: int) -> str:
    epochs = [retained.epoch for retained in newest.retained]
    if wanted == EMPTY:
        return "epoch 0 is the empty stream: there is nothing to read. Choose one that is retained"
    if is_abandoned(newest, wanted):
        left = "a change of the steps or a rollback left this epoch behind"
        return f"{left}, and it is no longer kept: choose one that is retained"
    if wanted > newest.version:
        return "there is no such epoch yet: choose one that is retained"
    if epochs and 0 <= wanted < min(epochs):
        return "this epoch is no longer kept: choose one that is retained, and keep more with `retained` in future"
    return "there is no such epoch (numbers have gaps): choose one that is retained"


def _epoch_list(newest: Manifest) -> str:
    return ranges(retained.epoch for retained in newest.retained) or "none"
