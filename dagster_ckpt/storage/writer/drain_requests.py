"""Drain requests in the store: made by whoever wants a writer to end, looked for by the writer."""

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


def rest_of(interval_ms: int) -> int:
    """How long a writer without an epoch, which has one every `interval_ms` at most, rests between two looks."""
    return min(max(interval_ms, LOOK_MS_MIN), LOOK_MS_MAX)


def write_drain(store: ObjectStore, request: DrainRequest) -> None:
    """Ask, in the place of whoever has asked before. A crash leaves this request or the one before."""
    store.put(request_name(DRAIN), encode_drain(request))


def read_drain(store: ObjectStore) -> DrainRequest | None:
    """The newest request; None where there is none, or none that can be read."""
    try:
        return decode_drain(store.get(request_name(DRAIN)))
    except ObjectMissingError:
        return None


@dataclass
class DrainWatch:
    """A writer's look-out for requests. `first` is its first term.

    It costs a read after each epoch and after each `interval_ms` without one (a second to ten seconds), whatever the
    store. Once there is a reason to end, it stays.
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
        rest_ms = LOOK_MS_MIN if epoch > before else rest_of(self.interval_ms)
        return now_ms - looked_ms >= rest_ms

    def _look(self) -> str | None:
        try:
            request = read_drain(self.store)
        except StoreUnavailableError as error:
            _log.warning("the store did not say whether the stream is to be drained; asked again. reason=%s", error)
            return None
        if request is None or not request.is_meant_for(self.first, self.holder):
            return None
        return f"drained, as was asked for on {request.host}"
