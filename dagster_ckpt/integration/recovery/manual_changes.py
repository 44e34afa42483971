"""What people change in a stream from outside of Dagster, as events in Dagster's history of the asset.

Rollbacks, reshards and forks are manifests, which the sensor reads anyway. Pins are objects: they are listed when their
mark has changed, and when a stream is read in full, for a change without a mark. A tick that dies between an event and
the cursor reports the event again.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import dagster as dg

from dagster_ckpt.errors import CorruptStateError
from dagster_ckpt.ids import Epoch, Version
from dagster_ckpt.integration.recovery.sensor_memory import LeaseSeen
from dagster_ckpt.integration.recovery.stream_status import StreamStatus
from dagster_ckpt.protocol.manifest.manifest import Manifest, ManifestKind
from dagster_ckpt.storage.chain.manifest_chain import ManifestChain
from dagster_ckpt.storage.leases.heartbeat import read_lease
from dagster_ckpt.storage.operations.manual_opening import is_by_hand
from dagster_ckpt.storage.retention_refs.pins import find_pin, names_of_pins

_READ_MAX = 32
"""After a pause, changes in this many newest manifests are reported."""

_LOOKED = 1
"""`LeaseSeen.pins_ms` of a stream that had no pin so far; 0: its pins were never listed."""

Value = str | int | dg.MetadataValue


@dataclass(frozen=True, slots=True)
class Change:
    """One change. `at_ms` is when it was made, on the clock of its host (ms since the Unix epoch), None if unknown."""

    kind: str
    text: str
    at_ms: int | None
    figures: Mapping[str, Value]

    def observation(self, key: dg.AssetKey) -> dg.AssetObservation:
        at = {} if self.at_ms is None else {"changed_at": dg.MetadataValue.timestamp(self.at_ms / 1000)}
        return dg.AssetObservation(key, self.text, metadata={"change": self.kind, **at, **self.figures})


@dataclass(frozen=True, slots=True)
class _Pin:
    """What is remembered of a pin. `fork` is the stream that needs it; None: a user made it."""

    name: str
    time_ms: int
    epoch: Epoch
    fork: str | None


@dataclass
class ChangeWatch:
    """The pins of each stream as last listed, in the memory of one process. If it is lost, they are read once.

    `_marks` are the marks of their changes by then.
    """

    _pins: dict[str, dict[str, _Pin]] = field(default_factory=dict, init=False)
    _marks: dict[str, bytes] = field(default_factory=dict, init=False)

    def look(self, chain: ManifestChain, status: StreamStatus, before: LeaseSeen, seen: LeaseSeen) -> "Look":
        """The changes since `before`, the last tick that has reported them, and what to remember of them in `seen`."""
        if status.newest is None:
            return Look((), seen)
        changes = [describe_change(chain, manifest) for manifest in _changing(chain, status, Version(before.version))]
        pins_ms = before.pins_ms
        if not status.remembered or status.pins_mark != self._marks.get(chain.store.url, b""):
            pins_ms = max([_LOOKED, before.pins_ms, *(pin.time_ms for pin in self._list(chain, before, changes))])
            self._marks[chain.store.url] = status.pins_mark
        return Look(tuple(changes), replace(seen, version=status.newest.version, pins_ms=pins_ms))

    def _list(self, chain: ManifestChain, before: LeaseSeen, changes: list[Change]) -> list[_Pin]:
        """The pins now; adds to `changes` those that are new, or were removed while this process has watched."""
        place = chain.store.url
        known = self._pins.get(place, {})
        found = [known.get(name) or _read(chain, name) for name in names_of_pins(chain, "")]
        pins = [pin for pin in found if pin is not None]
        if before.pins_ms:
            changes += [_pin_change(pin) for pin in pins if pin.time_ms > before.pins_ms]
        there = {pin.name for pin in pins}
        changes += [_unpin_change(pin) for name, pin in known.items() if name not in there]
        self._pins[place] = {pin.name: pin for pin in pins}
        return pins


@dataclass(frozen=True, slots=True)
class Look:
    """The changes of one look, oldest first of each sort, and what the sensor remembers."""

    changes: tuple[Change, ...]
    seen: LeaseSeen


def describe_change(chain: ManifestChain, manifest: Manifest) -> Change:
    """The change that a manifest of a kind other than open and epoch has made."""
    figures: dict[str, Value] = {"epoch": int(manifest.epoch), "version": int(manifest.version)}
    lease = read_lease(chain.store, manifest.term)
    if lease is not None:
        figures |= {"host": lease.holder.process.host, "process": lease.holder.process.pid}
    match manifest.kind:
        case ManifestKind.ROLLBACK:
            text = f"Rolled back to epoch {manifest.epoch}"
            above = [each for each in manifest.abandoned if each.first > manifest.epoch]
            if above:
                first, last = above[-1].first, above[-1].last
                figures["abandoned_epochs"] = f"{first} to {last}"
                text += (
                    f"; epoch {first} is abandoned" if first == last else f"; epochs {first} to {last} are abandoned"
                )
            if not is_by_hand(root_run := manifest.rollbacks[-1]):
                figures["dagster_run"] = dg.MetadataValue.dagster_run(root_run)
        case ManifestKind.RESHARD:
            figures["shards"] = manifest.shards
            text = f"Resharded: {manifest.shards} shards from the next epoch on"
        case ManifestKind.SWAP:
            figures["changed_rows"] = manifest.statistics.rows_out
            text = f"Rebuilt by new code: epoch {manifest.epoch} has the difference of the two tables"
        case _:
            origin = manifest.ancestors[-1]
            figures["forked_from"] = f"{origin.stream}@{origin.epoch}"
            text = f"Forked from epoch {origin.epoch} of {origin.stream}"
    return Change(str(manifest.kind), f"{text}.", manifest.time_ms, figures)


def _changing(chain: ManifestChain, status: StreamStatus, since: Version) -> Iterator[Manifest]:
    """The manifests after `since` (0: unknown, so only the newest) that neither open the stream nor make an epoch."""
    newest = status.newest
    assert newest is not None
    first = newest.version if since == 0 else max(since, newest.version - _READ_MAX) + 1
    read = {manifest.version: manifest for manifest in (*status.walked, newest)}
    for version in range(first, newest.version + 1):
        try:
            manifest = read.get(Version(version)) or chain.find(Version(version))
        except CorruptStateError:
            continue  # who needs it reports the damage
        if manifest is not None and manifest.kind not in {ManifestKind.OPEN, ManifestKind.EPOCH}:
            yield manifest


def _read(chain: ManifestChain, name: str) -> "_Pin | None":
    try:
        pin = find_pin(chain, name)
    except CorruptStateError:
        return None  # `verify` and the collector report the damage
    if pin is None:
        return None
    return _Pin(pin.name, pin.time_ms, pin.manifest.epoch, None if pin.fork is None else pin.fork.stream)


def _pin_change(pin: _Pin) -> Change:
    figures: dict[str, Value] = {"epoch": int(pin.epoch), "pin": pin.name}
    if pin.fork is None:
        return Change("pin", f"Epoch {pin.epoch} is pinned as {pin.name!r}.", pin.time_ms, figures)
    text = f"Epoch {pin.epoch} is forked to {pin.fork}, and kept for it."
    return Change("fork", text, pin.time_ms, {**figures, "forked_to": pin.fork})


def _unpin_change(pin: _Pin) -> Change:
    text = f"The pin {pin.name!r} of epoch {pin.epoch} is removed."
    return Change("unpin", text, None, {"epoch": int(pin.epoch), "pin": pin.name})
