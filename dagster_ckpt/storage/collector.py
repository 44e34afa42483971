"""The garbage collector of one stream: retires old manifests, then removes the files that nobody needs any more.

Safe beside writers, readers, pinners and other collectors, whatever dies or sleeps, because of the order of its
looks. It lists all names *before* it reads the newest manifest: a file it saw belongs to an epoch that is committed by
then, or is in flight, or never will be. It deletes only below a bound that was passed a grace period ago: by then
everybody who chose an epoch while it was retained has read it, or pinned it. It reads the pins last. And nothing that
was garbage ever stops being garbage: so a pass may be cut short, overtaken or woken up years later.

It decides from the store alone; what it remembers is nothing. `protocol.retention` says what is garbage.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from dagster_ckpt.errors import CorruptStateError
from dagster_ckpt.ids import FIRST, Term, Version
from dagster_ckpt.protocol.manifest import IndexedList, Manifest
from dagster_ckpt.protocol.manifest_codec import CHANGES
from dagster_ckpt.protocol.names import (
    COLLECTOR,
    SUBSCRIBERS,
    TRIMMED,
    is_probe_name,
    manifest_name,
    parse_lease_name,
    parse_manifest_name,
)
from dagster_ckpt.protocol.retention import bound, files_named, is_garbage, lists_of_files
from dagster_ckpt.storage.chain import ManifestChain
from dagster_ckpt.storage.indexed_lists import IndexedLists
from dagster_ckpt.storage.object_store import ObjectMissingError
from dagster_ckpt.storage.patience import Tries
from dagster_ckpt.storage.pins import read_pins

GRACE_MS = 3_600_000
_COARSE_MS = 1_000
"""Some stores know whole seconds only: an age may be that much less than it looks."""
_TRIES_MAX = 5


@dataclass(frozen=True, slots=True)
class Collected:
    """How many objects of each kind a pass removed. `leftovers` are what writes that never ended have left behind."""

    manifests: int = 0
    files: int = 0
    leases: int = 0
    leftovers: int = 0


class _OvertakenError(Exception):
    """Another collector has removed a manifest that this pass needed: its bound was higher."""


@dataclass(frozen=True)
class Collector:
    """`chain` is the stream's. `grace_ms` is longer than any reader reads and any list is late."""

    chain: ManifestChain
    grace_ms: int = GRACE_MS

    def collect(self, writer: Term | None = None) -> Collected:
        """One pass. `writer` is the term of a writer that collects for its own stream; None for anybody else.

        Raises `CorruptStateError` where a manifest or pin that says what is needed cannot be read: then nothing is
        removed; and `StoreUnavailableError`: then the next pass goes on where this one ended.
        """
        for _ in range(_TRIES_MAX):
            try:
                return self._pass(writer)
            except _OvertakenError:
                continue
        raise CorruptStateError(
            f"a manifest is missing that must be there; nothing was removed. Restore it from a backup, or wait until "
            f"its epoch is retired. store={self.chain.store.url}"
        )

    def _pass(self, writer: Term | None) -> Collected:
        store = self.chain.store
        names = self._tries().until_answered(lambda: list(store.list("")))
        newest = self.chain.newest()
        if newest is None or any(name.startswith(f"{SUBSCRIBERS}/") for name in names):
            return Collected()  # what a subscriber needs, only a later release knows
        now_ms = self._now_ms()
        first = self._first(names, newest)
        last = bound(newest, self._retired(first, newest, now_ms))
        needed = self._needed(last, newest)
        self._pinned()  # one that is damaged is found before anything is removed
        manifests = self._retire(first, last)
        needed |= self._pinned()
        files = [name for name in names if is_garbage(name, needed, newest, writer)]
        old = [name for name in names if self._is_old_advice(name, newest, now_ms)]
        for name in (*files, *old):
            self._delete(name)
        leftovers = self._tries().until_answered(
            lambda: store.discard_leftovers("", now_ms - self.grace_ms - _COARSE_MS)
        )
        return Collected(manifests, len(files), len(old), leftovers)

    def _now_ms(self) -> int:
        """The store's own time: that of an object just written."""
        store, tries = self.chain.store, self._tries()
        tries.until_answered(lambda: store.put(COLLECTOR, b"{}"))
        return tries.until_answered(lambda: store.modified_ms(COLLECTOR))

    def _first(self, names: list[str], newest: Manifest) -> Version:
        """The oldest manifest there is. A list may be late, so the one below it is asked for."""
        listed = (parse_manifest_name(name) for name in names)
        first = min(version for version in (*listed, newest.version) if version is not None)
        while first > FIRST and self._exists(Version(first - 1)):
            first = Version(first - 1)
        return first

    def _retired(self, first: Version, newest: Manifest, now_ms: int) -> Manifest | None:
        """A manifest as new as can be found that has been there for a grace period; None where there is none."""
        old, young = Version(first - 1), Version(newest.version + 1)
        while young - old > 1:
            middle = Version((old + young) // 2)
            if self._is_old(middle, now_ms):
                old = middle
            else:
                young = middle
        for version in range(old, first - 1, -1):
            if self._exists(Version(version)) and (manifest := self._readable(Version(version))) is not None:
                return manifest
        return None

    def _is_old(self, version: Version, now_ms: int) -> bool:
        """Whether the manifest has been there for a grace period, or is gone."""
        try:
            return now_ms - self._modified_ms(manifest_name(version)) >= self.grace_ms + _COARSE_MS
        except ObjectMissingError:
            return True

    def _needed(self, last: Version, newest: Manifest) -> set[str]:
        """The files that manifests from `last` on name."""
        needed: set[str] = set()
        seen: set[str] = set()
        try:
            for manifest in self._from(last, newest):
                needed |= self._files_of(manifest, seen)
        except CorruptStateError:
            if not self._exists(last):
                raise _OvertakenError from None  # and with it went what it named
            raise
        return needed

    def _pinned(self) -> set[str]:
        """The files that pins name."""
        pins = read_pins(self.chain.store, self.chain.clock, self.chain.patience)
        seen: set[str] = set()
        return set().union(*(self._files_of(pin.manifest, seen) for pin in pins))

    def _from(self, last: Version, newest: Manifest) -> Iterator[Manifest]:
        retained = {entry.version for entry in newest.retained}
        for version in map(Version, range(last, newest.version)):
            manifest = self._read(version) if version in retained else self._readable(version)
            if manifest is not None:
                yield manifest
        yield newest

    def _files_of(self, manifest: Manifest, seen: set[str]) -> set[str]:
        """All files that a manifest names, also by way of index objects; those in `seen` were looked into already."""
        named = files_named(manifest)
        fresh = tuple(ref for ref in lists_of_files(manifest) if ref.path not in seen)
        lists = IndexedLists(self.chain.store, CHANGES, self.chain.clock, self.chain.patience)
        named |= {change.path for change in lists.entries(IndexedList(fresh)) if change.ancestor is None}
        seen |= {ref.path for ref in fresh}
        return named

    def _retire(self, first: Version, last: Version) -> int:
        """Delete the manifests from `first` up to but not including `last`: oldest first, each confirmed."""
        if first >= last:
            return 0
        store, tries = self.chain.store, self._tries()
        tries.until_answered(lambda: store.put_if_absent(TRIMMED, b"{}"))
        for version in map(Version, range(first, last)):
            # Its answer confirms it. What lies there a moment later is a sleeper's, on the number that was just freed.
            self._delete(manifest_name(version))
        return last - first

    def _is_old_advice(self, name: str, newest: Manifest, now_ms: int) -> bool:
        """Whether the object is the lease of an earlier term, or was left by a probe, and has been for long."""
        term = parse_lease_name(name)
        if not is_probe_name(name) and (term is None or term >= newest.term):
            return False
        try:
            return now_ms - self._modified_ms(name) >= self.grace_ms + _COARSE_MS
        except ObjectMissingError:
            return False

    def _read(self, version: Version) -> Manifest:
        manifest = self.chain.find(version)
        if manifest is None:
            raise _OvertakenError
        return manifest

    def _readable(self, version: Version) -> Manifest | None:
        """A manifest that no retained epoch needs; None for a damaged one: nobody can read what it alone names."""
        try:
            return self._read(version)
        except CorruptStateError:
            return None

    def _exists(self, version: Version) -> bool:
        return self._tries().until_answered(lambda: self.chain.store.exists(manifest_name(version)))

    def _modified_ms(self, name: str) -> int:
        return self._tries().until_answered(lambda: self.chain.store.modified_ms(name))

    def _delete(self, name: str) -> None:
        self._tries().until_answered(lambda: self.chain.store.delete(name))

    def _tries(self) -> Tries:
        return Tries(self.chain.clock, self.chain.patience)
