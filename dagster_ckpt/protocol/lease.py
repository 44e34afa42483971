"""The lease: a writer's heartbeat, and what a reader may conclude from it. Advice only: the guard is the term.

A reader cannot compare another host's clock with its own. It can only watch: as long as the counter changes, the writer
lives; when it has seen one counter unchanged for the lease's time-out of its *own* clock, the lease has lapsed. Two
things say so at once: the lease was closed, or its process is known to be gone.
"""

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from dagster_ckpt.ids import Epoch, Term
from dagster_ckpt.protocol.json_codec import COUNT, TEXT, Codec, Record, optional


@dataclass(frozen=True, slots=True)
class ProcessId:
    """One process on one machine: never mistaken for a later one with the same number.

    `boot` is the id of the host's boot and `namespace` that of the process numbers (each container has its own);
    `started_ticks` the clock ticks from boot to its start.
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
    """What a lease's `closed` says of a writer that was made to end before it had done its work."""
    return _INTERRUPTED + what


@dataclass(frozen=True, slots=True)
class EpochProgress:
    """How far the epoch in work was when Spark was last asked: `tasks_done` of `tasks` have ended, after `elapsed_ms`.

    `slowest` says which of the others has worked for longest, and for `slowest_ms`; None where none works.
    """

    epoch: Epoch
    elapsed_ms: int
    tasks_done: int
    tasks: int
    slowest: str | None = None
    slowest_ms: int = 0


@dataclass(frozen=True, slots=True)
class Lease:
    """What a term's writer last said. `counter` changes with each beat; `closed` is why it ended, None before that.

    `epoch` is the newest it has committed or found, `timeout_ms` how long its silence must last to mean its end. `work`
    is what it does now, None where nothing is to be told of that: between two epochs, and of short ones.
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
        """Whether its writer was made to end before it had done its work."""
        return self.closed is not None and self.closed.startswith(_INTERRUPTED)

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


def _work_of(fields: Any) -> EpochProgress | None:
    """The work that these fields tell; None where they tell it in words that this release does not know."""
    try:
        return None if fields is None else _WORK.decode({name: fields[name] for name in _WORK_FIELDS})
    except (KeyError, ValueError, TypeError):
        return None


_LEASE_FIELDS: Mapping[str, Codec[Any]] = {
    "term": COUNT,
    "holder": _HOLDER,
    "timeout_ms": COUNT,
    "epoch": COUNT,
    "counter": COUNT,
    "closed": optional(TEXT),
    "work": Codec(_work_of, optional(_WORK).encode),
}
_LEASE = Record(Lease, _LEASE_FIELDS).codec()
_CHECKSUM = "checksum"
_FOR_PEOPLE = json.JSONEncoder(indent=1)
_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"))


def encode_lease(lease: Lease) -> bytes:
    """The bytes of a lease: plain JSON, for people too."""
    fields = _LEASE.encode(lease)
    return _FOR_PEOPLE.encode({**fields, _CHECKSUM: _checksum(fields)}).encode()


def decode_lease(data: bytes) -> Lease | None:
    """The lease of these bytes; None where they are none or damaged, as if there were no lease: it is advice.

    Fields of a newer release are passed over: what this one knows of is enough to be polite. Release 0.1.0 wrote no
    checksum, and nothing of the work.
    """
    try:
        fields = json.loads(data)
        checksum = fields.pop(_CHECKSUM, None)
        if checksum is not None and checksum != _checksum(fields):
            return None
        known = {name: fields[name] for name in _LEASE_FIELDS if name in fields}
        return _LEASE.decode({"work": None, **known})
    except (AttributeError, ValueError, TypeError, RecursionError):
        return None


def _checksum(fields: Mapping[str, Any]) -> str:
    """Of all fields, known or not, whatever their order and the blanks between them."""
    return f"{zlib.crc32(_CANONICAL.encode(fields).encode()):08x}"


class Life(StrEnum):
    """What is known of the writer of a term."""

    CLOSED = "closed"
    """It said that it ended."""
    DEAD = "dead"
    """Its process is gone."""
    LAPSED = "lapsed"
    """It was silent for the time-out."""
    BEATING = "beating"
    """It lives, or nobody can know better yet."""


@dataclass(frozen=True, slots=True)
class Watch:
    """What a reader has seen of a term's lease: its counter (0: no lease), and since when on the reader's own clock."""

    term: Term
    counter: int
    since_ms: int


def watched(before: Watch | None, term: Term, lease: Lease | None, now_ms: int) -> Watch:
    """The watch after one more look: it begins anew when the term or the counter has changed."""
    counter = 0 if lease is None else lease.counter
    if before is not None and (before.term, before.counter) == (term, counter):
        return before
    return Watch(term, counter, now_ms)


def judged(watch: Watch, lease: Lease | None, now_ms: int, timeout_ms: int, *, process_is_gone: bool) -> Life:
    """What is known of the writer. `timeout_ms` is the reader's; where the writer's own is longer, that counts."""
    if lease is not None and lease.closed is not None:
        return Life.CLOSED
    if lease is not None and process_is_gone:
        return Life.DEAD
    patience_ms = timeout_ms if lease is None else max(timeout_ms, lease.timeout_ms)
    return Life.LAPSED if now_ms - watch.since_ms >= patience_ms else Life.BEATING
