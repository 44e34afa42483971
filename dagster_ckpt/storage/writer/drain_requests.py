"""Drain requests in the store: written to end a writer, polled by the writer."""

import logging
from dataclasses import dataclass, field

from dagster_ckpt.clock import Clock
from dagster_ckpt.errors import StoreUnavailableError
from dagster_ckpt.ids import Epoch, Term
from dagster_ckpt.protocol.drain_request import DRAIN, DrainRequest, decode_drain, encode_drain
from dagster_ckpt.protocol.lease import LeaseHolder
from dagster_ckpt.protocol.object_names import request_name
from dagster_ckpt.storage.stores.object_store import ObjectMissingError, ObjectStore

_log = logging.getLogger(__name__)

LOOK_MS_MIN, LOOK_MS_MAX = 1_000, 10_000
_DRAINED = "drained, as was asked for on"


def look_interval_ms(interval_ms: int) -> int:
    """How long an idle writer, whose epochs are `interval_ms` apart, waits between two checks."""
    return min(max(interval_ms, LOOK_MS_MIN), LOOK_MS_MAX)


def write_drain(store: ObjectStore, request: DrainRequest) -> None:
    """Write the request, replacing any earlier one. A crash leaves this request or the earlier one."""
    store.put(request_name(DRAIN), encode_drain(request))


def was_drained(closed: str | None) -> bool:
    """Whether a lease that was closed with these words is of a writer that a request in the store has ended."""
    return closed is not None and closed.startswith(_DRAINED)


def read_drain(store: ObjectStore) -> DrainRequest | None:
    """The newest request; None if there is none, or none that can be read."""
    try:
        return decode_drain(store.get(request_name(DRAIN)))
    except ObjectMissingError:
        return None


@dataclass
class DrainWatch:
    """A writer's watch for drain requests. `first` is the writer's first term.

    It costs one read after each epoch and after each `interval_ms` without one (one to ten seconds). A reason to end
    is final.
    """

    store: ObjectStore
    clock: Clock
    holder: LeaseHolder
    first: Term
    interval_ms: int
    _reason: str | None = field(default=None, init=False)
    _looked: tuple[Epoch, int] | None = field(default=None, init=False)

    def reason(self, epoch: Epoch) -> str | None:
        """Why to end; None to go on. `epoch` is the newest that the writer has committed."""
        now_ms = self.clock.monotonic_ms()
        if self._reason is None and self._is_due(epoch, now_ms):
            self._looked = (epoch, now_ms)
            self._reason = self._look()
        return self._reason

    def _is_due(self, epoch: Epoch, now_ms: int) -> bool:
        if self._looked is None:
            return True
        before, looked_ms = self._looked
        rest_ms = LOOK_MS_MIN if epoch > before else look_interval_ms(self.interval_ms)
        return now_ms - looked_ms >= rest_ms

    def _look(self) -> str | None:
        try:
            request = read_drain(self.store)
        except StoreUnavailableError as error:
            _log.warning("the drain request could not be read; the writer tries again soon. reason=%s", error)
            return None
        if request is None or not request.is_meant_for(self.first, self.holder):
            return None
        return f"{_DRAINED} {request.host}"
