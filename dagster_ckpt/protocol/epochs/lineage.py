"""Which retained epochs the newest one builds on, and which a rollback abandoned."""

from collections.abc import Iterable

from dagster_ckpt.ids import Epoch
from dagster_ckpt.protocol.manifest.manifest import EpochRange, Manifest, Retained


def is_abandoned(newest: Manifest, epoch: int) -> bool:
    """Whether a rollback, or a change of the steps, abandoned this epoch."""
    return _is_in(newest.abandoned, epoch)


def lineage(newest: Manifest) -> tuple[Retained, ...]:
    """The retained epochs that the shown one builds on, and itself; oldest first."""
    return tuple(entry for entry in newest.retained if not is_abandoned(newest, entry.epoch))


def lineage_epochs(newest: Manifest) -> list[Epoch]:
    """The epoch numbers of `lineage`, oldest first."""
    return [entry.epoch for entry in lineage(newest)]


def limit_retained(
    retained: tuple[Retained, ...], abandoned: tuple[EpochRange, ...], epochs_max: int
) -> tuple[Retained, ...]:
    """The epochs that stay retained, oldest first as before.

    Those that a rollback abandoned go first: the epoch that was just restored must not be retired for them.
    """
    by_worth = sorted(retained, key=lambda entry: (not _is_in(abandoned, entry.epoch), entry.epoch))
    return tuple(sorted(by_worth[-epochs_max:], key=lambda entry: entry.epoch))


def ranges(epochs: Iterable[Epoch]) -> str:
    """Epochs as text for people: `0, 3-7, 9`."""
    spans: list[tuple[int, int]] = []
    for epoch in sorted(epochs):
        if spans and epoch == spans[-1][1] + 1:
            spans[-1] = (spans[-1][0], epoch)
        else:
            spans.append((epoch, epoch))
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)


def _is_in(stretches: tuple[EpochRange, ...], epoch: int) -> bool:
    return any(entry.first <= epoch <= entry.last for entry in stretches)
