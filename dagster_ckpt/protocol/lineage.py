"""Which retained epochs the newest one builds on, and which a rollback left behind."""

from dagster_ckpt.ids import Epoch
from dagster_ckpt.protocol.manifest import Manifest, Retained


def is_abandoned(newest: Manifest, epoch: int) -> bool:
    """Whether a rollback left this epoch behind."""
    return any(entry.first <= epoch <= entry.last for entry in newest.abandoned)


def lineage(newest: Manifest) -> tuple[Retained, ...]:
    """The retained epochs that the shown one builds on, and itself; oldest first."""
    return tuple(entry for entry in newest.retained if not is_abandoned(newest, entry.epoch))


def lineage_epochs(newest: Manifest) -> list[Epoch]:
    """Their numbers."""
    return [entry.epoch for entry in lineage(newest)]
