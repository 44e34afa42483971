"""Facts about a pin."""

from dataclasses import dataclass
from datetime import datetime

from dagster_ckpt.history.info.epoch_info import moment_of
from dagster_ckpt.ids import Epoch
from dagster_ckpt.protocol.epochs.pin import Pin


@dataclass(frozen=True, slots=True)
class PinInfo:
    """A name that keeps an epoch readable. Both times are aware and in UTC, by the clocks of their writers.

    `fork` is the stream for which a fork has pinned the epoch; None for a person's pin. An `orphan` is the pin of
    a fork that does not exist: it was removed or never created. It can be unpinned; a new fork of that name removes it.
    """

    name: str
    epoch: Epoch
    pinned_at: datetime
    committed_at: datetime
    fork: str | None = None
    orphan: bool = False


def pin_info(pin: Pin, *, orphan: bool = False) -> PinInfo:
    return PinInfo(
        name=pin.name,
        epoch=pin.manifest.epoch,
        pinned_at=moment_of(pin.time_ms * 1_000),
        committed_at=moment_of(pin.manifest.time_ms * 1_000),
        fork=None if pin.fork is None else pin.fork.stream,
        orphan=orphan,
    )
