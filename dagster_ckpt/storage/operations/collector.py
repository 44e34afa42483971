"""The garbage collector of one stream: deletes old manifests, then the files that are no longer needed.

Safe beside writers, readers, pinners and other collectors, whatever dies or sleeps, because of the order of its
reads. It lists all names *before* it reads the newest manifest: each listed file belongs to an epoch that is committed
by then, or is in flight, or never will be. It deletes only below a bound that was passed a grace period ago: by then
every reader that chose an epoch while it was retained has read or pinned it. It reads subscribers and pins after that,
and last what was committed meanwhile: a stream may have gone back to a pinned epoch, whose pin was then removed. What
no pin keeps stays garbage: so a pass may be interrupted, overtaken or resumed years later.

It deletes in the stream's folder only, but reads the streams that subscribe to this one. It does the same in the
folders of streams that were rebuilt alongside and have taken the stream's place (`rebuilt_folders`).

A fork's collector also releases the pin with which the fork keeps an ancestor's files, once no readable epoch names any
of them: no later manifest will either. Nothing else in the folder of an origin is ever changed.

It decides from the store alone and keeps no state. `protocol.epochs.retention` defines what is garbage.

It needs no space to free space. Both objects that it writes are empty, which a full disk still accepts. A store may
refuse them all the same (a quota, a server that is temporarily read-only):

    refused             instead                                     so it
    `collector.json`    uses the latest known time of an object     sees too young an age, and some garbage stays
    `trimmed.json`      keeps all manifests and change logs, as     removes the state of retired epochs, and files that
                        for a subscriber that is far behind         no manifest names

What it removes then may free the space for both: it makes another pass.
"""

import logging
from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import partial

from dagster_ckpt.errors import CheckpointError, CorruptStateError, StoreUnavailableError
from dagster_ckpt.ids import FIRST, Epoch, Nonce, StreamUuid, Term, Version
from dagster_ckpt.protocol.epochs.lineage import is_abandoned
from dagster_ckpt.protocol.epochs.pin import Pin
from dagster_ckpt.protocol.epochs.retention import (
    files_named,
    first_needed,
    is_cut_off,
    is_garbage,
    lists_of_files,
    log_bound,
    log_named,
    log_start,
)
from dagster_ckpt.protocol.epochs.upstream import parse_backfill_pin
from dagster_ckpt.protocol.manifest.codec import CHANGES
from dagster_ckpt.protocol.manifest.manifest import IndexedList, Manifest
from dagster_ckpt.protocol.manifest.references import ancestors_named
from dagster_ckpt.protocol.object_names import (
    COLLECTOR,
    PINS,
    TRIMMED,
    is_probe_name,
    lease_name,
    manifest_name,
    parse_lease_name,
    parse_manifest_name,
    parse_pin_name,
    parse_verdict_name,
    pin_name,
)
from dagster_ckpt.storage.chain.indexed_lists import IndexedLists
from dagster_ckpt.storage.chain.manifest_chain import ManifestChain
from dagster_ckpt.storage.operations.rebuilt_folders import rebuilt_folders
from dagster_ckpt.storage.retention_refs.ancestors import ancestors_folder
from dagster_ckpt.storage.retention_refs.pins import find_pin, read_pins, settled_pins
from dagster_ckpt.storage.retention_refs.subscribers import find_progress, read_subscribers
from dagster_ckpt.storage.stores.object_store import ObjectMissingError, ObjectStore

_log = logging.getLogger(__name__)

GRACE_MS = 3_600_000
MAX_LAG = 10_000
_COARSE_MS = 1_000
"""Some stores record whole seconds only: the real age may be smaller by this much."""
_TRIES_MAX = 5
_WRITE_MS = 5_000
"""How long a write is retried: a pass can do without."""

_Named = tuple[set[str], set[StreamUuid]]
"""The named files of the stream, and the other streams of which files are named."""


@dataclass(frozen=True, slots=True)
class Collected:
    """How many objects of each kind a pass removed.

    `leases` counts leftovers of probes and the verdicts on pins too; `leftovers` are those of interrupted writes.
    `cut_off` and `gone` name subscribers: those that are too far behind, so that the log is not kept for them, and
    those whose streams are not in the store, for which it is kept.
    """

    manifests: int = 0
    files: int = 0
    leases: int = 0
    leftovers: int = 0
    cut_off: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()

    @property
    def objects(self) -> int:
        """How many objects were removed in all."""
        return self.manifests + self.files + self.leases + self.leftovers

    def after(self, earlier: "Collected") -> "Collected":
        """What both passes removed, and what this later one found of subscribers."""
        return replace(
            self,
            manifests=self.manifests + earlier.manifests,
            files=self.files + earlier.files,
            leases=self.leases + earlier.leases,
            leftovers=self.leftovers + earlier.leftovers,
        )


class _OvertakenError(Exception):
    """Another collector has removed a manifest that this pass needed: its bound was higher."""


@dataclass(frozen=True)
class Collector:
    """`chain` is the stream's; `root` is the whole store, with the folders of the streams that need this one.

    `grace_ms` is longer than any read takes and any list is late. A subscriber that is more than `max_lag` epochs
    behind is cut off: the log is no longer kept for it.
    """

    chain: ManifestChain
    root: ObjectStore
    grace_ms: int = GRACE_MS
    max_lag: int = MAX_LAG

    def collect(self, writer: Term | None = None) -> Collected:
        """One pass. `writer` is the term of the stream's writer, if that collects; None for any other process.

        Raises `CorruptStateError` if a manifest, a pin or a subscriber that decides what is needed cannot be read: then
        nothing is removed; and `StoreUnavailableError`: then the next pass goes on where this one ended. What is wrong
        with the folder of a rebuilt stream is logged.
        """
        return self._collect_own(writer).after(self._collect_rebuilt())

    def _collect_rebuilt(self) -> Collected:
        collected = Collected()
        for theirs in rebuilt_folders(self.chain, self.root, self.grace_ms):
            try:
                collected = replace(self, chain=theirs)._collect_own(None).after(collected)  # noqa: SLF001
            except CheckpointError as error:
                _log.warning("what is left of a rebuilt stream was not collected. reason=%s", error)
        return collected

    def _collect_own(self, writer: Term | None) -> Collected:
        collected = Collected()
        for _ in range(_TRIES_MAX):
            try:
                found, refused = self._pass(writer)
            except _OvertakenError:
                continue
            collected = found.after(collected)
            if not (refused and found.objects):
                return collected
        if collected.objects:
            return collected
        raise CorruptStateError(
            f"a needed manifest is missing; nothing was removed. Restore it from a backup, or wait until "
            f"its epoch is retired. store={self.chain.store.url}"
        )

    def _pass(self, writer: Term | None) -> tuple[Collected, bool]:
        """What one pass removed, and whether the store refused what it wanted to write."""
        names = list(self.chain.span().list(""))
        newest = self.chain.newest()
        if newest is None:
            return Collected(), False
        takes_writes = self._writes(lambda store: store.put(COLLECTOR, b""))
        now_ms = self._now_ms() if takes_writes else self._latest_known_ms(newest)
        first = self._first(names, newest)
        # Nothing is left below the first manifest: if none is known to be retired, the bound is only 1.
        last = max(first, first_needed(newest, self._newest_retired(first, newest, now_ms)))
        following, cut_off, gone = self._subscriptions(newest)
        log = max(first, log_bound(last, following))
        needed, ancestors = self._needed_files(last, newest, min(following, default=newest.epoch))
        needed |= self._log_files(log, last, newest)
        self._pinned_files(read_pins(self.chain))  # finds a damaged pin before anything is removed
        self._release_snapshots(names, newest)
        if first < log and not self._is_marked_as_trimmed():
            needed |= self._log_files(first, log, newest)
            takes_writes, log = False, first
        manifests = self._retire(first, log)
        pins = settled_pins(self.chain)
        pinned, pinned_ancestors = self._pinned_files(pins)
        since, ancestors_since = self._names_since(newest)
        needed |= pinned | since
        self._release(newest, ancestors | pinned_ancestors | ancestors_since)
        files = [name for name in names if is_garbage(name, needed, newest, writer)]
        ended = partial(self._has_ended, newest=newest, pinned={pin.nonce for pin in pins})
        old = [name for name in names if ended(name) and self._is_older(name, now_ms)]
        for name in (*files, *old):
            self._delete(name)
        leftovers = self.chain.span().discard_leftovers("", now_ms - self.grace_ms - _COARSE_MS)
        return Collected(manifests, len(files), len(old), leftovers, cut_off, gone), not takes_writes

    def _writes(self, write: Callable[[ObjectStore], object]) -> bool:
        """Try to write: whether the store accepted it. An unanswered write may still happen, and harms nothing."""
        patience = self.chain.patience
        brief = replace(patience, total_ms=min(patience.total_ms, _WRITE_MS))
        try:
            write(replace(self.chain, patience=brief).span())
        except StoreUnavailableError as error:
            _log.warning("the store accepts no writes, so only a part of the garbage is collected. reason=%s", error)
            return False
        return True

    def _now_ms(self) -> int:
        """The store's time: that of an object just written."""
        return self._modified_ms(COLLECTOR)

    def _latest_known_ms(self, newest: Manifest) -> int:
        """A store time in the past: what is old by this time is old."""
        written = manifest_name(newest.version), lease_name(newest.term), COLLECTOR
        times = [time for name in written if (time := self._modified_ms_if_there(name)) is not None]
        if not times:
            raise _OvertakenError  # other writers have gone on until the newest manifest was retired
        return max(times)

    def _is_marked_as_trimmed(self) -> bool:
        """Whether the mark exists that must precede the first delete; created here if the store accepts it."""
        if self._writes(lambda store: store.put_if_absent(TRIMMED, b"")):
            return True
        return self.chain.span().exists(TRIMMED)

    def _first(self, names: list[str], newest: Manifest) -> Version:
        """The oldest existing manifest. A list may be late, so check the one below it."""
        listed = (parse_manifest_name(name) for name in names)
        first = min(version for version in (*listed, newest.version) if version is not None)
        while first > FIRST and self._exists(Version(first - 1)):
            first = Version(first - 1)
        return first

    def _newest_retired(self, first: Version, newest: Manifest, now_ms: int) -> Manifest | None:
        """The newest manifest found that has existed for a grace period; None if there is none."""
        old, young = Version(first - 1), Version(newest.version + 1)
        while young - old > 1:
            middle = Version((old + young) // 2)
            if self._is_old(middle, now_ms):
                old = middle
            else:
                young = middle
        for version in range(old, first - 1, -1):
            if (manifest := self._readable(Version(version))) is not None:
                return manifest
        return None

    def _is_old(self, version: Version, now_ms: int) -> bool:
        """Whether the manifest has existed for a grace period, or is gone."""
        try:
            return now_ms - self._modified_ms(manifest_name(version)) >= self.grace_ms + _COARSE_MS
        except ObjectMissingError:
            return True

    def _needed_files(self, last: Version, newest: Manifest, consumed: Epoch) -> _Named:
        """The files that manifests from `last` on name, and the streams of which they name files.

        A manifest that `newest` does not retain may be missing or damaged: no reader can read what it alone names. The
        numbers below those in use are freed, and a late list still shows them; each may hold a sleeper's manifest. But
        subscribers read the change logs of epochs after `consumed`. Another pass, whose bound is higher, removes all
        else that such a manifest names, perhaps while this one reads it.
        """
        needed, ancestors, seen = set[str](), set[StreamUuid](), set[str]()
        retained = {newest.version, *(entry.version for entry in newest.retained)}
        for version in map(Version, range(last, newest.version + 1)):
            try:
                manifest = self.chain.find(version)
                if manifest is None and version in retained:
                    raise _OvertakenError  # not read again: its number may hold a sleeper's manifest by now
                files, others = (set(), set()) if manifest is None else self._names_in(manifest, seen)
            except CorruptStateError:
                if version not in retained:
                    needed |= self._log_files(version, Version(version + 1), newest) if version > consumed else set()
                    continue
                if not self._exists(version) or not self._is_retained(version):
                    raise _OvertakenError from None  # and what it named is gone too, or all but its change log
                raise
            needed |= files
            ancestors |= others
        return needed, ancestors

    def _subscriptions(self, newest: Manifest) -> tuple[list[Epoch], tuple[str, ...], tuple[str, ...]]:
        """What subscribers that keep the log have consumed; the names of those cut off, and of those that are gone."""
        subscribers = read_subscribers(self.chain)
        following, cut_off, gone = [], [], []
        for each in find_progress(subscribers, self.root, self.chain, newest.uuid):
            if is_cut_off(newest, each.read, self.max_lag):
                cut_off.append(each.subscriber.stream)
                continue
            following.append(log_start(newest, each.consumed, self.max_lag))
            if each.gone:
                gone.append(each.subscriber.stream)
        return following, tuple(cut_off), tuple(gone)

    def _log_files(self, first: Version, last: Version, newest: Manifest) -> set[str]:
        """The files of the change logs from `first` up to but not including `last`.

        A missing one is a number that another or an earlier pass freed: it is no longer needed. A damaged one may be
        restored.
        """
        needed: set[str] = set()
        for version in map(Version, range(first, last)):
            try:
                manifest = self.chain.find(version)
            except CorruptStateError:
                if is_abandoned(newest, version):
                    continue
                raise
            needed |= set() if manifest is None else log_named(manifest)
        return needed

    def _names_since(self, newest: Manifest) -> _Named:
        """What manifests after `newest` name, as of now; read the pins before.

        While this pass slept, the stream may have gone back to a pinned epoch, and the pin was removed after that.
        """
        latest = self.chain.newest()
        if latest is None or latest.uuid != newest.uuid:
            raise _OvertakenError  # it is another stream by now
        return self._needed_files(Version(newest.version + 1), latest, latest.epoch)

    def _pinned_files(self, pins: Iterable[Pin]) -> _Named:
        """The files that these pins name, and the streams of which they name files."""
        seen: set[str] = set()
        named = []
        for pin in pins:
            try:
                named.append(self._names_in(pin.manifest, seen))
            except CorruptStateError as error:
                raise CorruptStateError(
                    f"a part of what a pin keeps is not there, so nothing is removed: restore it from a backup, or "
                    f"unpin it. A pin written long after its epoch was retired keeps nothing. pin={pin.name!r}, "
                    f"reason={error}"
                ) from error
        return set().union(*(files for files, _ in named)), set().union(*(ancestors for _, ancestors in named))

    def _release_snapshots(self, names: list[str], newest: Manifest) -> None:
        """Remove the pins of subscribers' first snapshots if the log after the snapshot is not kept.

        `names` were listed before `newest` was read: if the stream went back since, no new pin is among them.
        """
        for name in map(parse_pin_name, (name for name in names if name.startswith(f"{PINS}/"))):
            if parse_backfill_pin(name) is None:
                continue
            pin = find_pin(self.chain, name)
            if pin is not None and is_cut_off(newest, pin.manifest.epoch, self.max_lag):
                self._delete(pin_name(name))

    def _release(self, newest: Manifest, needed: set[StreamUuid]) -> None:
        """Remove the pins that keep unneeded files of ancestors. Each pass repeats this: a pin may be gone already."""
        for ancestor in newest.ancestors:
            if ancestor.uuid not in needed:
                folder, name = ancestors_folder(self.root, ancestor), pin_name(ancestor.pin_of(newest.uuid))
                replace(self.chain, store=folder).span().delete(name)

    def _names_in(self, manifest: Manifest, seen: set[str]) -> _Named:
        """All that a manifest names, also through index objects; those in `seen` were read already."""
        named = files_named(manifest)
        fresh = tuple(ref for ref in lists_of_files(manifest) if ref.path not in seen)
        lists = IndexedLists(self.chain.store, CHANGES, self.chain.clock, self.chain.patience)
        entries = lists.entries(IndexedList(fresh))
        named |= {change.path for change in entries if change.ancestor is None}
        seen |= {ref.path for ref in fresh}
        return named, ancestors_named(manifest) | {each.ancestor for each in entries if each.ancestor is not None}

    def _retire(self, first: Version, last: Version) -> int:
        """Delete the manifests from `first` up to but not including `last`: oldest first, each confirmed."""
        for version in map(Version, range(first, last)):
            # The reply confirms it. A manifest found there later is a sleeper's, on the number just freed.
            self._delete(manifest_name(version))
        return max(0, last - first)

    def _has_ended(self, name: str, newest: Manifest, pinned: AbstractSet[Nonce | None]) -> bool:
        """Whether the object is a lease of an earlier term, the verdict on a pin that is gone, or from a probe."""
        term, judged = parse_lease_name(name), parse_verdict_name(name)
        return (
            is_probe_name(name)
            or (term is not None and term < newest.term)
            or (judged is not None and judged not in pinned)
        )

    def _is_older(self, name: str, now_ms: int) -> bool:
        """Whether the object has existed for a grace period: a list shows what it belongs to, however late it is."""
        try:
            return now_ms - self._modified_ms(name) >= self.grace_ms + _COARSE_MS
        except ObjectMissingError:
            return False

    def _readable(self, version: Version) -> Manifest | None:
        try:
            return self.chain.find(version)
        except CorruptStateError:
            return None

    def _is_retained(self, version: Version) -> bool:
        """Whether the stream retains it still, however long ago this pass has read the newest manifest."""
        newest = self.chain.newest()
        return newest is not None and version in {newest.version, *(entry.version for entry in newest.retained)}

    def _exists(self, version: Version) -> bool:
        return self.chain.span().exists(manifest_name(version))

    def _modified_ms(self, name: str) -> int:
        return self.chain.span().modified_ms(name)

    def _modified_ms_if_there(self, name: str) -> int | None:
        try:
            return self._modified_ms(name)
        except ObjectMissingError:
            return None

    def _delete(self, name: str) -> None:
        self.chain.span().delete(name)
