"""Leases in the store: read, and kept beating by a separate thread while the work gives signs of life.

The thread goes on while everything else hangs: in a call to a lost disk, to a stopped Spark or to a database that never
answers. So the lease beats only while signs of life come. A writer that hangs for too long looks dead, and another
takes over; if it wakes up, its term is over.
"""

import logging
import threading
from dataclasses import dataclass, field, replace

from dagster_ckpt.clock import Clock
from dagster_ckpt.ids import Epoch, Term
from dagster_ckpt.protocol.lease import EpochProgress, Lease, decode_lease, encode_lease
from dagster_ckpt.protocol.object_names import lease_name
from dagster_ckpt.storage.stores.object_store import ObjectMissingError, ObjectStore


@dataclass
class Pulse:
    """Signs of life, from any thread. `silence_ms_max` is the longest time between two.

    It must be longer than every other time-out, such as an epoch's.
    """

    clock: Clock
    silence_ms_max: int
    _sign_ms: int = field(init=False)

    def __post_init__(self) -> None:
        self.sign()

    def sign(self) -> None:
        """Report that the work has made progress, or has nothing to do."""
        self._sign_ms = self.clock.monotonic_ms()

    @property
    def silent_ms(self) -> int:
        """How long ago the last sign came."""
        return self.clock.monotonic_ms() - self._sign_ms

    @property
    def beats(self) -> bool:
        return self.silent_ms <= self.silence_ms_max


_log = logging.getLogger(__name__)

BEATS_PER_TIMEOUT = 3
_AGAIN_MS = 1_000
"""The pause after a beat that could not be written, or a tenth of the period if that is shorter."""

NOT_OPEN = Term(0)
"""No writer has this term. Its lease is the heartbeat of the newest Dagster run that has not opened the stream yet."""


def read_lease(store: ObjectStore, term: Term) -> Lease | None:
    """The lease of that term in the stream's folder `store`; None if there is none, or none that can be read.

    Raises `StoreUnavailableError`: no reply proves nothing about a writer.
    """
    try:
        lease = decode_lease(store.get(lease_name(term)))
    except ObjectMissingError:
        return None
    # A lease under another term's name proves nothing about either term.
    return lease if lease is not None and lease.term == term else None


class LeaseHeartbeat:
    """Keeps one lease beating until it is closed. If the store does not answer, it tries again after a short pause.

    Periods count from the beginning of a beat: counted from its end, one request that stays silent until its time-out
    would use up half of a healthy lease.

    It does not beat while `pulse` is silent, so that hung work looks dead; None for work that cannot hang unnoticed.
    The lease is advice: nothing here ever raises into the writer's work, or stops it.
    """

    def __init__(self, store: ObjectStore, lease: Lease, clock: Clock, pulse: Pulse | None = None) -> None:
        self._store = store
        self._clock = clock
        self._lease = lease
        self._pulse = pulse
        self._pause_s = 0.0
        self._warned_ms: float | None = None
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"lease-{lease.term}", daemon=True)

    @property
    def lease(self) -> Lease:
        """The current lease."""
        with self._lock:
            return self._lease

    def begin(self) -> None:
        """Write the lease at once, then keep it beating from a separate thread."""
        self._write(self.lease)
        self._thread.start()

    def beat(self) -> None:
        """One beat."""
        with self._lock:
            self._lease = self._lease.beaten(self._lease.epoch)
        self._write(self.lease)

    def reach(self, epoch: Epoch) -> None:
        """Set the newest epoch. The next beat publishes it."""
        with self._lock:
            self._lease = replace(self._lease, epoch=epoch)

    def works(self, work: EpochProgress | None) -> None:
        """Set the progress of the epoch in work; None if there is none. The next beat publishes it."""
        with self._lock:
            self._lease = replace(self._lease, work=work)

    def end(self, reason: str) -> None:
        """Mark the lease closed, so that no opener waits for it. Calls after the first change nothing."""
        if self._ended.is_set():
            return
        self._ended.set()
        if self._thread.is_alive():
            # A late beat would open the lease again. If the store hangs past this time-out, the lease lapses.
            self._thread.join(self._lease.timeout_ms / 1000)
        with self._lock:
            self._lease = replace(self._lease, counter=self._lease.counter + 1, closed=reason, work=None)
        self._write(self.lease)

    def stop(self) -> None:
        """Let the lease lapse: stop beating without closing it, as if the writer had died."""
        self._ended.set()

    def _run(self) -> None:
        hung = False
        while not self._ended.wait(self._pause_s):
            if self._pulse is None or self._pulse.beats:
                hung = False
                self.beat()
                continue
            self._pause_s = self._lease.timeout_ms / 1000 / BEATS_PER_TIMEOUT
            if not hung:
                hung = True
                text = "the work has not moved for %s s: its lease is left to lapse, so another may take over. term=%s"
                _log.error(text, self._pulse.silent_ms // 1000, self._lease.term)

    def _write(self, lease: Lease) -> None:
        """Write the lease, and set the pause before the next beat."""
        began_ms = self._clock.monotonic_ms()
        period_ms = lease.timeout_ms / BEATS_PER_TIMEOUT
        try:
            self._store.put(lease_name(lease.term), encode_lease(lease))
            pause_ms = max(0, period_ms - (self._clock.monotonic_ms() - began_ms))
            self._warned_ms = None
        except Exception as error:  # noqa: BLE001  (if this thread died, the writer would look dead)
            if self._warned_ms is None or began_ms - self._warned_ms >= period_ms:  # it is tried far more often
                text = "the lease of term %s could not be written; the work continues. reason=%s"
                _log.warning(text, lease.term, error)
                self._warned_ms = began_ms
            pause_ms = min(_AGAIN_MS, period_ms / 10)
        self._pause_s = pause_ms / 1000
