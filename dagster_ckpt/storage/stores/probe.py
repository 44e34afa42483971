"""The self-probe: does this store create atomically? A store that does not would lose a user's data months later.

Two creates of one object in turn detect a store that overwrites. Concurrent creates detect a store that checks for the
object and then writes: another writer can come in between. The racers are threads of one process, so a store that
serialises creates only within a process is not detected.

Creates on NFS are decided by the server. But the store's contract also says that a read of one object is strongly
consistent, and that a durable object stays: some options of Linux's client give that up for speed, and are refused.
"""

import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from dagster_ckpt.clock import Clock
from dagster_ckpt.errors import InvalidPipelineError, StoreUnavailableError
from dagster_ckpt.protocol.object_names import probe_name
from dagster_ckpt.storage.stores.object_store import ObjectMissingError, ObjectStore
from dagster_ckpt.storage.stores.retry import Patience, RetrySpan

RACERS = 8
ROUNDS = 3
"""The first round also opens the connections, which may spread its racers out."""
_proved: set[str] = set()
_TRIES_MAX = 5
_AWAKE_MS = 1_000
"""A process that sleeps for longer than a collector's grace period finds its object gone: such a probe is repeated.

No collector deletes an object younger than this, so what a faster probe finds is caused by the store.
"""
_PATIENCE = Patience(total_ms=10_000)
_LOOK_S = 1.0

_Experiment = Callable[[ObjectStore, str], str]
"""Creates the named object several times. Returns what is wrong with the outcome; empty if the store is atomic."""


def prove_atomic_create(store: ObjectStore, clock: Clock) -> None:
    """Create objects several times, in turn and at once, and expect one winner of each; once per process and address.

    Raises `InvalidPipelineError` for a store with more or fewer winners or on an unsafe NFS mount, and
    `StoreUnavailableError`. A crash in the
    middle leaves one small object, which the collector deletes.
    """
    if store.url in _proved:
        return
    if (file := store.local_path("any")) is not None:
        refuse_unsafe_mount(file.parent)
    _prove(store, clock, _create_in_turn)
    for _ in range(ROUNDS):
        _prove(store, clock, _create_at_once)
    _proved.add(store.url)


def _prove(store: ObjectStore, clock: Clock, experiment: _Experiment) -> None:
    flaw, took_ms = "", 0
    for _ in range(_TRIES_MAX):
        # Each try uses a new name: after a lost reply the outcome under the old one is unknown.
        flaw, took_ms = RetrySpan(clock, _PATIENCE).retry(
            lambda: _time(store, clock, probe_name(clock.unique()), experiment)
        )
        if not flaw:
            return
        if took_ms < _AWAKE_MS:
            break
    raise InvalidPipelineError(
        f"this store does not create atomically (of all creates of one object exactly one must win): "
        f"keep the checkpoints elsewhere. store={store.url}, {flaw}"
    )


def _time(store: ObjectStore, clock: Clock, name: str, experiment: _Experiment) -> tuple[str, int]:
    began = clock.monotonic_ms(), clock.now_ms()
    try:
        flaw = experiment(store, name)
    finally:
        store.delete(name)
    # Suspending the host stops one clock and advances the other.
    return flaw, max(clock.monotonic_ms() - began[0], clock.now_ms() - began[1])


def _create_in_turn(store: ObjectStore, name: str) -> str:
    first, second = store.put_if_absent(name, b"first"), store.put_if_absent(name, b"second")
    kept = _get(store, name)
    return "" if (first, second, kept) == (True, False, b"first") else f"in_turn={[first, second]}, kept={kept!r}"


def _create_at_once(store: ObjectStore, name: str) -> str:
    """A racer whose reply is lost may be the winner: then the round counts only if another racer won."""
    start = threading.Event()
    racers = [_Racer(store, name, b"racer %d" % number, start) for number in range(RACERS)]
    for racer in racers:
        racer.thread.start()
    start.set()
    for racer in racers:
        racer.join()
    for racer in racers:
        if racer.error is not None and not isinstance(racer.error, StoreUnavailableError):
            raise racer.error
    unanswered = [racer.error for racer in racers if racer.error is not None]
    winners = [racer for racer in racers if racer.won]
    if unanswered and not winners:
        raise unanswered[0]
    kept = _get(store, name)
    if len(winners) == 1 and kept == winners[0].data:
        return ""
    return f"racers={RACERS}, winners={len(winners)}, kept={kept!r}"


@dataclass
class _Racer:
    """One create, in a separate thread that waits for `start`. `error` is what it got instead of a reply."""

    store: ObjectStore
    name: str
    data: bytes
    start: threading.Event
    won: bool = False
    error: Exception | None = None
    thread: threading.Thread = field(init=False)

    def __post_init__(self) -> None:
        self.thread = threading.Thread(target=self._create, name="probe", daemon=True)

    def join(self) -> None:
        """Wait for the reply. Each store bounds how long that takes."""
        while self.thread.is_alive():
            self.thread.join(_LOOK_S)

    def _create(self) -> None:
        while not self.start.wait(_LOOK_S):
            pass
        try:
            self.won = self.store.put_if_absent(self.name, self.data)
        except Exception as error:  # noqa: BLE001  (the thread that joins raises it)
            self.error = error


def _get(store: ObjectStore, name: str) -> bytes | None:
    try:
        return store.get(name)
    except ObjectMissingError:
        return None


_MOUNTS = Path("/proc/self/mountinfo")
_ESCAPED = re.compile(r"\\([0-7]{3})")

_REASONS = {
    "soft": "a request that takes long is reported as failed, and may happen later",
    "softerr": "a request that takes long is reported as failed, and may happen later",
    "nocto": "a file that another host has replaced is read as it was",
}
_CACHED_NAMES = "names that another host created or deleted are looked up in a cache that may be a minute old"


def refuse_unsafe_mount(folder: Path) -> None:
    """Raise `InvalidPipelineError` for a folder on an NFS mount with options that break the contract of a store."""
    try:
        mounts = _MOUNTS.read_text()
    except OSError:  # not Linux
        return
    reasons = unsafe_options(mounts, folder.resolve())
    if reasons:
        listed = "; ".join(f"{option}: {reason}" for option, reason in reasons.items())
        raise InvalidPipelineError(
            "the options of this NFS mount are not safe for checkpoints: mount it with hard,lookupcache=none and "
            f"without these ({listed}). folder={folder}"
        )


def unsafe_options(mounts: str, folder: Path) -> dict[str, str]:
    """Each option of the NFS mount with this folder that is not safe, and why; none where it is on no NFS.

    `mounts` is what `/proc/self/mountinfo` has.
    """
    found = _find_mount(mounts, folder)
    if found is None or found[0] not in {"nfs", "nfs4"}:
        return {}
    options = found[1]
    reasons = {option: reason for option, reason in _REASONS.items() if option in options}
    if not options & {"lookupcache=none", "noac", "acdirmax=0"}:
        lookups = next((option for option in options if option.startswith("lookupcache=")), "lookupcache=all")
        reasons[lookups] = _CACHED_NAMES
    return reasons


def _find_mount(mounts: str, folder: Path) -> tuple[str, set[str]] | None:
    """The type and options of the file system with this folder. The last of several mounts in one place shows."""
    best: tuple[int, str, set[str]] | None = None
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        point = Path(_ESCAPED.sub(lambda code: chr(int(code[1], 8)), before.split()[4]))
        depth = len(point.parts)
        if folder.is_relative_to(point) and (best is None or depth >= best[0]):
            kind, _, options = after.split(maxsplit=2)
            best = depth, kind, set(options.split(","))
    return None if best is None else best[1:]
