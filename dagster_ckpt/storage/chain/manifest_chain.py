"""The manifest chain of one stream: find the newest, read one, create the next. Rules 1 to 5 of the protocol live here.

The existing versions form one unbroken range: the first writer to create a version wins, and retention deletes strictly
oldest first, never the newest 16. Two things can still be outside of the range, and each is recognised:

- a *sleeper's* manifest: a writer slept for so long that retention freed the number it then created. A list shows later
  manifests. The writer looks right after its create, and deletes the manifest. If it dies in between, readers skip it.
- a late list that still shows, or does not yet show, a manifest. Lists are only a starting point.

A manifest that cannot be read still counts: the one before it is never returned in its place. `end` describes a chain
that ends in such a manifest, or has lost one; `newest` raises.
"""

from dataclasses import dataclass, field

from dagster_ckpt.clock import Clock
from dagster_ckpt.errors import CorruptStateError, FencedError, StoreUnavailableError
from dagster_ckpt.ids import FIRST, Nonce, Term, Version
from dagster_ckpt.protocol.manifest.codec import decode_manifest, decode_nonce, encode_manifest, is_read_back
from dagster_ckpt.protocol.manifest.manifest import Manifest
from dagster_ckpt.protocol.object_names import (
    LEASES,
    MANIFESTS,
    TRIMMED,
    manifest_name,
    parse_lease_name,
    parse_manifest_name,
)
from dagster_ckpt.storage.chain.damaged_end import LOST, BrokenEnd, digest_of
from dagster_ckpt.storage.leases.heartbeat import read_lease
from dagster_ckpt.storage.stores.object_store import ObjectMissingError, ObjectStore
from dagster_ckpt.storage.stores.retry import Patience, RetryingStore, RetrySpan


@dataclass(frozen=True, slots=True)
class Witnessed:
    """The greatest version that a list or lease shows, and the newest term that has a lease; 0 if there is none."""

    version: Version
    term: Term


def witness(store: ObjectStore) -> Witnessed:
    """What lists and leases show of the stream in the folder `store`. A list may show what was deleted since."""
    listed = [version for name in store.list(MANIFESTS) if (version := parse_manifest_name(name)) is not None]
    terms = [term for name in store.list(LEASES) if (term := parse_lease_name(name)) is not None]
    newest = max(terms, default=Term(0))
    lease = read_lease(store, newest) if newest else None
    if lease is None:
        newest = Term(0)  # gone meanwhile, or damaged: a name alone proves nothing
    leased = 0 if lease is None else max(lease.term, lease.epoch)
    return Witnessed(Version(max([leased, *listed])), newest)


_LOST_MAX = 1_000
"""How many consecutive versions may be missing or damaged. Beyond that, only a backup helps."""


@dataclass(frozen=True, slots=True)
class _Last:
    """The last manifest of an unbroken range of versions; `damage` explains why it cannot be read."""

    version: Version
    manifest: Manifest | None = None
    damage: str = ""


@dataclass(frozen=True)
class ManifestChain:
    """`store` is the folder of one stream. Every call retries for `patience` while the store does not answer."""

    store: ObjectStore
    clock: Clock
    patience: Patience = field(default_factory=Patience)
    _last: dict[Nonce, bytes] = field(default_factory=dict, init=False, repr=False, compare=False)
    """The bytes of the manifest that was created last: it is recognized without being read as JSON."""

    def span(self) -> RetryingStore:
        """The stream's folder for one piece of work: its calls are retried, and share the end of one `patience`."""
        span = RetrySpan(self.clock, self.patience)
        return RetryingStore(self.store, lambda: span)

    def newest(self, hint: Version | None = None) -> Manifest | None:
        """The newest manifest; None for a stream that was never created. `hint` is a version near it.

        Raises `StoreUnavailableError`, also if lists are too late to find it, and `CorruptStateError` if it is damaged
        or missing: an older manifest is never returned in its place.
        """
        end = self.end(hint)
        if isinstance(end, BrokenEnd):
            raise CorruptStateError(end.damage)
        return end

    def end(self, hint: Version | None = None) -> Manifest | BrokenEnd | None:
        """The newest manifest, or what is known of a damaged end; None for a stream that was never created.

        Raises `CorruptStateError` if none of the manifests can be read.
        """
        store = self.span()
        return store.retry(lambda: self._end(store, hint))

    def read(self, version: Version) -> Manifest:
        """The manifest of that version. Raises `CorruptStateError` if it is missing or damaged."""
        manifest = self.find(version)
        if manifest is None:
            raise CorruptStateError(
                f"a manifest is missing: its epoch is no longer retained, or the folder is incomplete. "
                f"object={manifest_name(version)}, store={self.store.url}"
            )
        return manifest

    def find(self, version: Version) -> Manifest | None:
        """The manifest of that version; None if it is missing. Raises `CorruptStateError` if it is damaged."""
        try:
            data = self.span().get(manifest_name(version))
        except ObjectMissingError:
            return None
        return self._decode(version, data)

    def is_newest(self, manifest: Manifest) -> bool:
        """Whether that manifest, which the caller created or read, still exists and has no successor.

        Raises `CorruptStateError` if it was damaged since.
        """
        store = self.span()
        # A successor may be too young for a list. Its absence proves nothing once this manifest's number was freed.
        if self._exists(Version(manifest.version + 1), store):
            return False
        return self._is_there(manifest, store) and not self._has_later(manifest.version, store)

    def is_left_behind(self, manifest: Manifest) -> bool:
        """Whether another writer has created a successor of that manifest, the last one that the caller created.

        Not retried, and cheap if there is no successor. Raises `StoreUnavailableError` if the store does not answer,
        and `CorruptStateError` if the manifest is gone and there is no later one: neither is an answer.
        """
        if self.store.exists(manifest_name(Version(manifest.version + 1))):
            return True
        if self.store.exists(manifest_name(manifest.version)):
            return False
        # Either others went on until its number was freed, or the stream is gone. `newest` distinguishes the two.
        newest = self.newest(manifest.version)
        return newest is not None and newest.version > manifest.version

    def settle(self) -> None:
        """Make what is visible durable. Call this before you build on a manifest that you found."""
        self.span().settle(MANIFESTS)

    def create(self, parent: Manifest | BrokenEnd | None, manifest: Manifest) -> None:
        """Create the manifest: when this returns it is durable, and it is the one successor of `parent`.

        After a broken end, missing manifests are first marked as lost.

        Raises `FencedError` if another writer was first, and `StoreUnavailableError` if the store did not answer until
        patience ended: then the manifest may exist or may yet appear, and its nonce must not be used for other bytes.
        A crash in the middle leaves the manifest or nothing.
        """
        data = encode_manifest(manifest)
        # A manifest that cannot be read back would cost the whole stream.
        assert is_read_back(data, manifest), manifest.version
        store = self.span()
        if isinstance(parent, BrokenEnd):
            self._mark_lost(parent, store)
        store.retry(lambda: self._create_once(manifest, data, store))
        self._check_place(parent, manifest, store)
        self._last.clear()
        self._last[manifest.nonce] = data

    def _mark_lost(self, end: BrokenEnd, store: RetryingStore) -> None:
        """Mark the missing manifests of a broken end as lost. A crash in between leaves the chain as broken as before.

        A sleeper's marks on freed numbers are skipped as its manifest would be, and the next pass collects them.
        """
        for number in range(end.unbroken + 1, end.version + 1):
            store.put_if_absent(manifest_name(Version(number)), LOST)
        store.settle(MANIFESTS)

    def _create_once(self, manifest: Manifest, data: bytes, store: RetryingStore) -> None:
        """Raise `StoreUnavailableError`, to be retried, unless the manifest is there.

        A store that says for ever that it exists when it is not there, or what stands before the store, is out of
        order: it gets no more than patience has.
        """
        if not self._create(manifest, data, store):
            raise StoreUnavailableError(
                f"the store refused a manifest because it exists, and it is not there: see what is wrong with the "
                f"store, then try again. object={manifest_name(manifest.version)}, store={self.store.url}"
            )

    def _create(self, manifest: Manifest, data: bytes, store: RetryingStore) -> bool:
        """Whether the manifest is there, by this try or an earlier one; False to try again."""
        name = manifest_name(manifest.version)
        if store.put_if_absent(name, data):
            return True
        found = self._bytes(manifest.version, store)
        if found is None:
            return False  # a sleeper deleted its manifest, or retention ours: the parent check finds out
        theirs = self._decode(manifest.version, found)
        if theirs.nonce != manifest.nonce:
            raise FencedError(
                f"another writer took over the stream; this one has stopped and changed nothing since. "
                f"stream={manifest.stream}, version={manifest.version}, mine={manifest.term}, theirs={theirs.term}"
            )
        # An earlier try made it visible, but the reply was lost: perhaps because it could not be made durable.
        store.settle(MANIFESTS)
        return True

    def _check_place(self, parent: Manifest | BrokenEnd | None, manifest: Manifest, store: RetryingStore) -> None:
        """Raise `FencedError` unless the manifest just created extends the chain, and delete it: see decision 59.

        One with a successor stays: it is a part of the chain, or below all that counts.
        """
        match parent:
            case None:
                extends = not self._is_trimmed(store)
            case BrokenEnd():
                extends = self._is_still_broken(parent, store)
            case _:
                extends = self._is_there(parent, store)
        if extends and not self._has_later(manifest.version, store):
            return
        successor = self._bytes(Version(manifest.version + 1), store)
        if successor is None:
            store.delete(manifest_name(manifest.version))
        elif self._is_built_on(manifest, successor):
            return
        raise FencedError(
            f"other writers have gone on while this one slept for long, or saw a late list; it has stopped and changed "
            f"nothing since. stream={manifest.stream}, version={manifest.version}, mine={manifest.term}"
        )

    def _is_built_on(self, manifest: Manifest, successor: bytes) -> bool:
        try:
            return self._decode(Version(manifest.version + 1), successor).parent_nonce == manifest.nonce
        except CorruptStateError:
            return False

    def _is_there(self, manifest: Manifest, store: RetryingStore) -> bool:
        """Whether the object at its version is this manifest, not a sleeper's."""
        data = self._bytes(manifest.version, store)
        if data is None:
            return False
        return (
            data == self._last.get(manifest.nonce)
            or decode_nonce(data, manifest_name(manifest.version)) == manifest.nonce
        )

    def _has_later(self, version: Version, store: RetryingStore) -> bool:
        """Whether a list shows a manifest of a later version: always, if the number of `version` was freed.

        A number is freed a grace period after a later manifest was created, and the newest is never deleted. So the one
        that was the newest a grace period ago is still there, and old enough for every list to show it.
        """
        return any(map(parse_manifest_name, store.list(MANIFESTS, manifest_name(version))))

    def _is_still_broken(self, end: BrokenEnd, store: RetryingStore) -> bool:
        """Whether the end is as it was when it was read.

        An unreadable manifest has no nonce: it is identified by its bytes, and by the newest readable manifest below.
        An operator may have restored it: then its epoch counts, and its term is taken.
        """
        data = self._bytes(end.version, store)
        same = data is not None and digest_of(data) == (end.digest or digest_of(LOST))
        return same and self._is_there(end.readable, store)

    def _end(self, store: RetryingStore, hint: Version | None) -> Manifest | BrokenEnd | None:
        last, known = self._search(store, hint), witness(self.store)
        if last is None or last.version < known.version:
            # A writer has gone on meanwhile, `hint` led to sleepers' manifests on freed numbers, or one was lost.
            # `known.version` existed before this search.
            last = self._search(store, None, known.version) if known.version else None
        unbroken = Version(0) if last is None else last.version
        if unbroken < known.version or (last is not None and last.manifest is None):
            return self._describe_break(last or _Last(unbroken), known, store)
        return None if last is None else last.manifest

    def _describe_break(self, last: _Last, known: Witnessed, store: RetryingStore) -> BrokenEnd:
        """Describe a chain whose unbroken range ends with `last`, which is damaged or not the newest."""
        version = max(last.version, known.version)
        missing = manifest_name(Version(last.version + 1))
        damage = last.damage or (
            f"a manifest was lost: restore it from a backup, or go back to an epoch before it. "
            f"object={missing}, known_to_be_used={version}, store={self.store.url}"
        )
        digest = None
        for number in range(version, max(0, version - _LOST_MAX), -1):
            data = self._bytes(Version(number), store)
            if data is None:
                continue
            digest = digest_of(data) if number == version else digest
            try:
                readable = self._decode(Version(number), data)
            except CorruptStateError:
                continue
            if version - last.version > _LOST_MAX:
                break
            return BrokenEnd(version, last.version, readable, max(readable.term, known.term), digest, damage)
        raise CorruptStateError(
            f"too many of the stream's manifests are damaged or missing: restore its folder from a backup, or "
            f"remove it, and the stream starts empty. damage={damage}"
        )

    def _search(self, store: RetryingStore, hint: Version | None, known: Version | None = None) -> _Last | None:
        """One search. Raises `StoreUnavailableError`, to be repeated, if the range moved on or a list was late.

        `known` is a version that is known to have existed, even if a late list does not show it.
        """
        for start in (hint, FIRST):
            if start is not None and self._exists(start, store):
                found = self._last_from(start, store)
                # Version 1 counts only while nothing was ever deleted; later it can only be a sleeper's.
                if found and (start != FIRST or not self._is_trimmed(store)):
                    return found
        # Read after version 1 was found missing: the collector creates this mark before it deletes version 1.
        trimmed = self._is_trimmed(store)
        listed = {version for name in store.list(MANIFESTS) if (version := parse_manifest_name(name)) is not None}
        if not listed and not trimmed:
            return None
        for start in sorted(listed | ({known} if known else set()), reverse=True):
            if self._exists(start, store) and (found := self._last_from(start, store)):
                return found
        raise StoreUnavailableError(
            f"the stream's manifests changed during the search: try again. store={self.store.url}"
        )

    def _last_from(self, start: Version, store: RetryingStore) -> _Last | None:
        """The last manifest of the range that contains `start`; None if that range is not, or no longer, the newest."""
        present, step = start, 1
        while self._exists(Version(present + step), store):
            present, step = Version(present + step), step * 2
        absent = Version(present + step)
        while absent - present > 1:
            middle = Version((present + absent) // 2)
            if self._exists(middle, store):
                present = middle
            else:
                absent = middle
        # An absent successor counts only if this manifest exists afterwards: numbers are freed from below.
        data = self._bytes(present, store)
        if data is None:
            return None
        if present != FIRST and not self._exists(Version(present - 1), store):
            return None
        try:
            return _Last(present, self._decode(present, data))
        except CorruptStateError as error:
            return _Last(present, damage=str(error))

    def _is_trimmed(self, store: RetryingStore) -> bool:
        return store.exists(TRIMMED)

    def _bytes(self, version: Version, store: RetryingStore) -> bytes | None:
        """The bytes of the object at this version; None if it is missing."""
        try:
            return store.get(manifest_name(version))
        except ObjectMissingError:
            return None

    def _exists(self, version: Version, store: RetryingStore) -> bool:
        return store.exists(manifest_name(version))

    def _decode(self, version: Version, data: bytes) -> Manifest:
        name = manifest_name(version)
        if data == LOST:
            raise CorruptStateError(
                f"a manifest was lost, and a rollback went back past it: restore it from a backup, or go back to an "
                f"epoch before it. object={name}, store={self.store.url}"
            )
        manifest = decode_manifest(data, name)
        if manifest.version != version:
            raise CorruptStateError(
                f"a manifest's version differs from its file name: restore the folder from a backup. "
                f"object={name}, version={manifest.version}, store={self.store.url}"
            )
        return manifest
