"""The lease: a writer's heartbeat, and what a reader may conclude from it. Advice only: the guard is the term.

A reader cannot compare another host's clock with the local one. It can only watch: as long as the counter changes, the
writer lives; once the counter has not changed for the lease's timeout on the *local* clock, the lease has lapsed. A
closed lease, or a process known to be gone, proves the end at once.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from dagster_ckpt.ids import Epoch, Term
from dagster_ckpt.protocol.json_codec import CHECKSUM, COUNT, TEXT, Codec, Record, checksum_of, optional, up_to


@dataclass(frozen=True, slots=True)
class ProcessId:
    """One process on one machine: never mistaken for a later one with the same PID.

    `boot` is the id of the host's boot, `namespace` that of the PID namespace (each container has one), and
    `started_ticks` the clock ticks from boot to the start of the process.
    """

    host: str
    boot: str
    namespace: str
    pid: int
    started_ticks: int


@dataclass(frozen=True, slots=True)
class LeaseHolder:
    """Who writes: the Dagster run, the run-storage id of its Dagster instance, and its process."""

    dagster_run_id: str
    instance: str
    process: ProcessId


_INTERRUPTED = "interrupted: "


def interruption(what: str) -> str:
    """The text of `closed` in the lease of a writer that was stopped before it had done its work."""
    return _INTERRUPTED + what


def is_interruption(closed: str | None) -> bool:
    """Whether the text of `closed` is that of such a writer."""
    return closed is not None and closed.startswith(_INTERRUPTED)


_REFUSED = "refused: "
_REFUSAL_LENGTH_MAX = 2_000


def refusal(why: str) -> str:
    """The text of `closed` in the lease of a run that started and was refused the stream."""
    return (_REFUSED + why)[:_REFUSAL_LENGTH_MAX]


def is_refusal(closed: str | None) -> bool:
    """Whether the text of `closed` is that of such a run."""
    return closed is not None and closed.startswith(_REFUSED)


@dataclass(frozen=True, slots=True)
class EpochProgress:
    """Spark's last report on the epoch in work: after `elapsed_ms`, `tasks_done` of `tasks` have ended.

    `slowest` is the running task that has worked for longest, and `slowest_ms` for how long; None where none runs.
    """

    epoch: Epoch
    elapsed_ms: int
    tasks_done: int
    tasks: int
    slowest: str | None = None
    slowest_ms: int = 0


LEASE_TIMEOUT_MS_MAX = 24 * 3_600_000
"""The longest silence that a lease may allow: until then a stream whose writer is gone stands still."""


@dataclass(frozen=True, slots=True)
class Lease:
    """The newest heartbeat of a term's writer. `counter` changes with each beat; `closed` is why it ended, else None.

    `epoch` is the newest that it has committed or found, `timeout_ms` how long it may be silent before it counts as
    ended. `work` is its progress; None between two epochs, and for short ones.
    """

    term: Term
    holder: LeaseHolder
    timeout_ms: int
    epoch: Epoch
    counter: int = 1
    closed: str | None = None
    work: EpochProgress | None = None

    @property
    def interrupted(self) -> bool:
        """Whether its writer was stopped before it had done its work."""
        return is_interruption(self.closed)

    def beaten(self, epoch: Epoch) -> "Lease":
        """The next beat."""
        return replace(self, counter=self.counter + 1, epoch=epoch)


_PROCESS = Record(
    ProcessId, {"host": TEXT, "boot": TEXT, "namespace": TEXT, "pid": COUNT, "started_ticks": COUNT}
).codec()
_HOLDER = Record(LeaseHolder, {"dagster_run_id": TEXT, "instance": TEXT, "process": _PROCESS}).codec()
_WORK_FIELDS: Mapping[str, Codec[Any]] = {
    "epoch": COUNT,
    "elapsed_ms": COUNT,
    "tasks_done": COUNT,
    "tasks": COUNT,
    "slowest": optional(TEXT),
    "slowest_ms": COUNT,
}
_WORK = Record(EpochProgress, _WORK_FIELDS).codec()


def _epoch_progress(fields: Any) -> EpochProgress | None:
    """The progress in these fields; None if this release cannot read them."""
    try:
        return None if fields is None else _WORK.decode({name: fields[name] for name in _WORK_FIELDS})
    except (KeyError, ValueError, TypeError):
        return None


_LEASE_FIELDS: Mapping[str, Codec[Any]] = {
    "term": COUNT,
    "holder": _HOLDER,
    "timeout_ms": up_to(LEASE_TIMEOUT_MS_MAX),
    "epoch": COUNT,
    "counter": COUNT,
    "closed": optional(TEXT),
    "work": Codec(_epoch_progress, optional(_WORK).encode),
}
_LEASE = Record(Lease, _LEASE_FIELDS).codec()
_FOR_PEOPLE = json.JSONEncoder(indent=1)


def encode_lease(lease: Lease) -> bytes:
    """The bytes of a lease: plain JSON, for people too."""
    fields = _LEASE.encode(lease)
    return _FOR_PEOPLE.encode({**fields, CHECKSUM: checksum_of(fields)}).encode()


def decode_lease(data: bytes) -> Lease | None:
    """The lease in these bytes; None if there is none or it is damaged, as if there were no lease: it is advice.

    Ignores the fields of a newer release: the known ones are enough for advice.
    """
    try:
        fields = json.loads(data)
        if fields.pop(CHECKSUM, None) != checksum_of(fields):
            return None
        return _LEASE.decode({"work": None, **{name: fields[name] for name in _LEASE_FIELDS if name in fields}})
    except (AttributeError, ValueError, TypeError, RecursionError):
        return None


class Life(StrEnum):
    """What is known of the writer of a term."""

    CLOSED = "closed"
    """It closed its lease."""
    DEAD = "dead"
    """Its process is gone."""
    LAPSED = "lapsed"
    """It was silent for the timeout."""
    BEATING = "beating"
    """It lives, or nothing else is known yet."""


@dataclass(frozen=True, slots=True)
class Watch:
    """What a reader has seen of a term's lease: its counter (0: no lease), and since when on the reader's clock."""

    term: Term
    counter: int
    since_ms: int


def next_watch(before: Watch | None, term: Term, lease: Lease | None, now_ms: int) -> Watch:
    """The watch after one more read: it restarts when the term or the counter has changed."""
    counter = 0 if lease is None else lease.counter
    if before is not None and (before.term, before.counter) == (term, counter):
        return before
    return Watch(term, counter, now_ms)


def judge(watch: Watch, lease: Lease | None, now_ms: int, timeout_ms: int, *, process_is_gone: bool) -> Life:
    """What is known of the writer. `timeout_ms` is the reader's; if the writer's is longer, that counts."""
    if lease is not None and lease.closed is not None:
        return Life.CLOSED
    if lease is not None and process_is_gone:
        return Life.DEAD
    patience_ms = timeout_ms if lease is None else max(timeout_ms, lease.timeout_ms)
    return Life.LAPSED if now_ms - watch.since_ms >= patience_ms else Life.BEATING
