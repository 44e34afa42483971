"""What can be said of a pin."""

from dataclasses import dataclass
from datetime import datetime

from dagster_ckpt.history.epoch_info import moment_of
from dagster_ckpt.ids import Epoch
from dagster_ckpt.protocol.pin import Pin


@dataclass(frozen=True, slots=True)
class PinInfo:
    """A name that keeps an epoch readable. Both times are aware and in UTC, by the clock of whoever wrote them."""

    name: str
    epoch: Epoch
    pinned_at: datetime
    committed_at: datetime


def pin_info(pin: Pin) -> PinInfo:
    return PinInfo(
        name=pin.name,
        epoch=pin.manifest.epoch,
        pinned_at=moment_of(pin.time_ms * 1_000),
        committed_at=moment_of(pin.manifest.time_ms * 1_000),
    )
