"""Facts about a stream's writer, from the lease of its newest term."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from dagster_ckpt.history.info.epoch_info import moment_of
from dagster_ckpt.ids import Epoch, Term
from dagster_ckpt.protocol.lease import (
    EpochProgress,
    Lease,
    Life,
    Watch,
    is_interruption,
    is_refusal,
    judge,
    next_watch,
)
from dagster_ckpt.protocol.manifest.manifest import Manifest
from dagster_ckpt.protocol.object_names import lease_name
from dagster_ckpt.storage.chain.manifest_chain import ManifestChain
from dagster_ckpt.storage.leases.heartbeat import NOT_OPEN, read_lease
from dagster_ckpt.storage.leases.process_identity import is_gone
from dagster_ckpt.storage.stores.object_store import ObjectMissingError

SILENCE_MS_MAX = 30_000
"""How long a writer without a readable lease may be silent; a lease names its timeout."""


class WriterStatus(StrEnum):
    """Whether a stream is live."""

    LIVE = "live"
    ENDED = "ended"
    """It closed its lease."""
    INTERRUPTED = "interrupted"
    """It was stopped before it had done its work."""
    DEAD = "dead"
    """Its process, on this host, is gone."""
    SILENT = "silent"
    """Its lease was not renewed in time."""
    OPENING = "opening"
    """It has not written its lease."""
    REFUSED = "refused"
    """The last Dagster run that started was refused the stream: `closed` says why."""
    NOT_RUNNING = "not running"
    """No Dagster run has opened the stream since it was forked, rolled back or resharded."""


@dataclass(frozen=True, slots=True)
class WriterInfo:
    """The writer of a stream's newest term. It is advice: its last heartbeat, and what follows from that.

    `life` is its state now. `epoch` is the newest it had committed, `work` how far the next one was (None between two
    epochs, and in their first second), `closed` why it ended. Without a lease the names are empty. `beat_at` is when
    the lease was last written, by the store's clock, None where that was not read; a writer at work writes it well
    within `timeout_ms`.
    """

    term: Term
    life: Life
    dagster_run_id: str = ""
    instance: str = ""
    host: str = ""
    pid: int | None = None
    epoch: Epoch | None = None
    work: EpochProgress | None = None
    closed: str | None = None
    timeout_ms: int = SILENCE_MS_MAX
    beat_at: datetime | None = None

    def status(self, now: datetime) -> WriterStatus:
        """What one look can say. `now` is the reader's time: a clock ahead makes a heartbeat look older."""
        match self.life:
            case Life.CLOSED if not self.dagster_run_id:
                return WriterStatus.NOT_RUNNING
            case Life.CLOSED:
                how = WriterStatus.INTERRUPTED if is_interruption(self.closed) else WriterStatus.ENDED
                return WriterStatus.REFUSED if is_refusal(self.closed) else how
            case Life.DEAD:
                return WriterStatus.DEAD
            case Life.LAPSED:
                return WriterStatus.SILENT
            case Life.BEATING:
                if not self.is_known:
                    return WriterStatus.OPENING
                silent = self.beat_at is not None and now - self.beat_at > timedelta(milliseconds=self.timeout_ms)
                return WriterStatus.SILENT if silent else WriterStatus.LIVE

    @property
    def ended(self) -> bool:
        """Whether it is known to have ended."""
        return self.life is not Life.BEATING

    @property
    def is_known(self) -> bool:
        """Whether it has written its lease; not yet right after it has opened the stream."""
        return self.host != ""

    def is_same(self, other: "WriterInfo") -> bool:
        """Whether the other one is this writer, perhaps in a later term, or belongs to the same Dagster run."""
        if self.dagster_run_id:
            return self.dagster_run_id == other.dagster_run_id
        return self.term == other.term or (self.host, self.pid) == (other.host, other.pid)


class WriterWatch:
    """Looks at a stream's writer repeatedly: one look cannot show that it has fallen silent."""

    def __init__(self, chain: ManifestChain, newest: Callable[[], Manifest]) -> None:
        """`newest` reads the newest manifest of `chain`; it raises where there is none."""
        self._chain = chain
        self._newest = newest
        self._watch: Watch | None = None

    def look(self) -> WriterInfo:
        """The writer now. Raises `CorruptStateError` where the newest manifest is damaged."""
        term = self._newest().term
        lease, now_ms = lease_of(self._chain, term), self._chain.clock.monotonic_ms()
        self._watch = next_watch(self._watch, term, lease, now_ms)
        gone = lease is not None and is_gone(lease.holder.process)
        patience_ms = SILENCE_MS_MAX if lease is None else lease.timeout_ms
        info = _info(term, lease, judge(self._watch, lease, now_ms, patience_ms, process_is_gone=gone))
        if info.life is not Life.CLOSED or not info.dagster_run_id:
            return info
        # All runs that start share one lease, so it is that of the last one.
        start = lease_of(self._chain, NOT_OPEN)
        if start is None or not is_refusal(start.closed):
            return info
        return replace(_info(term, start, Life.CLOSED), epoch=info.epoch)


def lease_of(chain: ManifestChain, term: Term) -> Lease | None:
    """That term's lease; None where it is missing or cannot be read."""
    return read_lease(chain.span(), term)


def _info(term: Term, lease: Lease | None, life: Life) -> WriterInfo:
    if lease is None:
        return WriterInfo(term, life)
    holder = lease.holder
    return WriterInfo(
        term=term,
        life=life,
        dagster_run_id=holder.dagster_run_id,
        instance=holder.instance,
        host=holder.process.host,
        pid=holder.process.pid,
        epoch=lease.epoch,
        work=None if life is not Life.BEATING else lease.work,
        closed=lease.closed,
        timeout_ms=lease.timeout_ms,
    )


def last_beat(chain: ManifestChain, term: Term) -> datetime | None:
    """When that term's lease was last written, by the store's clock; None where it is missing."""
    try:
        return moment_of(chain.span().modified_ms(lease_name(term)) * 1_000)
    except ObjectMissingError:
        return None
