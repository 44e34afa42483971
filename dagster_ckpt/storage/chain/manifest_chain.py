"""The manifest chain of one stream: find the newest, read one, create the next. Rules 1 to 5 of the protocol live here.

The versions that are there are one unbroken range: each is created once, by whoever gets there first, and retention
deletes strictly oldest first, never the newest 16. Two things can still lie outside of it, and each is recognised:

- a *sleeper's* manifest: a writer slept for so long that retention freed the number it then created. Its parent is
  missing. The writer itself sees that right after its create and takes the manifest away; should it die in between,
  whoever finds it sees the same and passes over it.
- a late list that still shows, or not yet shows, a manifest. Lists are only a place to begin.

A manifest that cannot be read is there all the same: nobody is ever answered from the one before it. `end` says what is
known of a chain that ends in such a one, or has lost one; `newest` raises.
"""

from dataclasses import dataclass, field

from dagster_ckpt.clock import Clock
from dagster_ckpt.errors import CorruptStateError, FencedError, StoreUnavailableError
from dagster_ckpt.ids import FIRST, Version
from dagster_ckpt.protocol.manifest.codec import decode_manifest, decode_nonce, encode_manifest
from dagster_ckpt.protocol.manifest.manifest import Manifest
from dagster_ckpt.protocol.object_names import MANIFESTS, TRIMMED, manifest_name, parse_manifest_name
from dagster_ckpt.storage.chain.damaged_end import LOST, BrokenEnd, digest_of
from dagster_ckpt.storage.chain.version_hints import Witnessed, witnessed
from dagster_ckpt.storage.stores.object_store import ObjectMissingError, ObjectStore
from dagster_ckpt.storage.stores.retry import Patience, RetrySpan
from dagster_ckpt.storage.stores.retrying_store import RetryingStore

_LOST_MAX = 1_000
"""So many numbers in a row may have lost their manifests, or have damaged ones, before nothing but a backup helps."""


@dataclass(frozen=True, slots=True)
class _Last:
    """The last manifest of an unbroken range of versions; what is wrong with it where it cannot be read."""

    version: Version
    manifest: Manifest | None = None
    damage: str = ""


@dataclass(frozen=True)
class ManifestChain:
    """`store` is the folder of one stream. Every call waits out a store that does not answer, for `patience`."""

    store: ObjectStore
    clock: Clock
    patience: Patience = field(default_factory=Patience)

    def span(self) -> RetryingStore:
        """The stream's folder for one piece of work: its calls are retried, and share the end of one `patience`."""
        span = RetrySpan(self.clock, self.patience)
        return RetryingStore(self.store, lambda: span)

    def newest(self, hint: Version | None = None) -> Manifest | None:
        """The newest manifest; None for a stream that was never created. `hint` is a version it may be near to.

        Raises `StoreUnavailableError`, also where lists are too late to find it, and `CorruptStateError` where it is
        damaged or missing: then no older one is taken for it.
        """
        end = self.end(hint)
        if isinstance(end, BrokenEnd):
            raise CorruptStateError(end.damage)
        return end

    def end(self, hint: Version | None = None) -> Manifest | BrokenEnd | None:
        """The newest manifest, or what is known of an end that is damaged; None for a stream that was never created.

        Raises `CorruptStateError` where none of its manifests can be read.
        """
        store = self.span()
        return store.retry(lambda: self._end(store, hint))

    def read(self, version: Version) -> Manifest:
        """The manifest of that version. Raises `CorruptStateError` where it is missing or damaged."""
        manifest = self.find(version)
        if manifest is None:
            raise CorruptStateError(
                f"a manifest is missing: its epoch is no longer retained, or the folder is not complete. "
                f"object={manifest_name(version)}, store={self.store.url}"
            )
        return manifest

    def find(self, version: Version) -> Manifest | None:
        """The manifest of that version; None where it is missing. Raises `CorruptStateError` where it is damaged."""
        try:
            data = self.span().get(manifest_name(version))
        except ObjectMissingError:
            return None
        return self._decoded(version, data)

    def is_newest(self, manifest: Manifest) -> bool:
        """Whether that manifest, which the caller created or read, is still there and none came after it.

        Raises `CorruptStateError` where it was damaged since.
        """
        store = self.span()
        # In this order: that the next is absent means nothing once this one's number was freed.
        return not self._exists(Version(manifest.version + 1), store) and self._is_in_use(manifest, store)

    def is_left_behind(self, manifest: Manifest) -> bool:
        """Whether somebody has gone on after that manifest, which the caller created: he has created nothing since.

        Asked once, without patience, and cheap where nobody has. Raises `StoreUnavailableError` where the store does
        not answer, and `CorruptStateError` where the manifest is gone and no later one is there: neither is a verdict.
        """
        if self.store.exists(manifest_name(Version(manifest.version + 1))):
            return True
        if self.store.exists(manifest_name(manifest.version)):
            return False
        # Others went on for so long that its number was freed, or the stream is not there: whose word counts, it shows.
        newest = self.newest(manifest.version)
        return newest is not None and newest.version > manifest.version

    def settle(self) -> None:
        """Make what is visible durable: whoever builds on a manifest it found does so first."""
        self.span().settle(MANIFESTS)

    def create(self, parent: Manifest | BrokenEnd | None, manifest: Manifest) -> None:
        """Create the manifest: when this returns it is durable, and it is the one successor of `parent`.

        Below one that follows a broken end, manifests that are missing are marked as lost first.

        Raises `FencedError` where another writer was there first, and `StoreUnavailableError` where the store did not
        answer to the end: then the manifest may exist or may yet appear, and its nonce must not be used for other
        bytes. A crash in the middle leaves the manifest or nothing.
        """
        data = encode_manifest(manifest)
        # What cannot be read back would cost the whole stream.
        assert decode_manifest(data, manifest_name(manifest.version)) == manifest, manifest.version
        store = self.span()
        if isinstance(parent, BrokenEnd):
            self._mark_lost(parent, store)
        while not self._created(manifest, data, store):
            pass
        self._check_parent(parent, manifest, store)

    def _mark_lost(self, end: BrokenEnd, store: RetryingStore) -> None:
        """A crash in between leaves a chain that is as broken, and of which no more is known.

        A sleeper's marks on freed numbers are passed over as its manifest would be, and are collected with the next.
        """
        for number in range(end.unbroken + 1, end.version + 1):
            store.put_if_absent(manifest_name(Version(number)), LOST)
        store.settle(MANIFESTS)

    def _created(self, manifest: Manifest, data: bytes, store: RetryingStore) -> bool:
        """Whether the manifest is there, by this try or an earlier one; False to try again."""
        name = manifest_name(manifest.version)
        if store.put_if_absent(name, data):
            return True
        found = self._bytes(manifest.version, store)
        if found is None:
            return False  # another sleeper took its manifest away, or retention ours: the parent check will tell
        theirs = self._decoded(manifest.version, found)
        if theirs.nonce != manifest.nonce:
            raise FencedError(
                f"another writer took over the stream; this one has stopped and changed nothing since. "
                f"stream={manifest.stream}, version={manifest.version}, mine={manifest.term}, theirs={theirs.term}"
            )
        # An earlier try made it visible, but its answer did not come: perhaps because it could not be made durable.
        store.settle(MANIFESTS)
        return True

    def _check_parent(self, parent: Manifest | BrokenEnd | None, manifest: Manifest, store: RetryingStore) -> None:
        """Find out whether retention had freed the manifest's number before it was created."""
        match parent:
            case None:
                freed = self._is_trimmed(store)
            case BrokenEnd():
                freed = not self._is_still_broken(parent, store)
            case _:
                freed = not self._is_in_use(parent, store)
        if not freed:
            return
        # What has a successor was built upon before its parent was retired, or lies below all that counts: it stays.
        if not self._exists(Version(manifest.version + 1), store):
            store.delete(manifest_name(manifest.version))
        raise FencedError(
            f"this writer slept for so long, or saw so late a list, that others have written the stream and retired "
            f"what it built upon; it has stopped and changed nothing since. "
            f"stream={manifest.stream}, version={manifest.version}, mine={manifest.term}"
        )

    def _is_there(self, manifest: Manifest, store: RetryingStore) -> bool:
        """Whether it is this very manifest that has its number, not another sleeper's."""
        data = self._bytes(manifest.version, store)
        return data is not None and decode_nonce(data, manifest_name(manifest.version)) == manifest.nonce

    def _is_in_use(self, manifest: Manifest, store: RetryingStore) -> bool:
        """Whether it is there and its number was not freed: then the one below is there too, of all the newest ones.

        What a writer asked for long ago may be done at any time: a manifest may come back, the very same, on its freed
        number, and whoever built upon it and slept would find it there.
        """
        if not self._is_there(manifest, store):
            return False
        return manifest.version == FIRST or self._exists(Version(manifest.version - 1), store)

    def _is_still_broken(self, end: BrokenEnd, store: RetryingStore) -> bool:
        """Whether the end is as it was when it was looked at.

        What cannot be read has no nonce: its very bytes tell it from others, and so does the newest manifest below it
        that has one. Numbers are freed from below, so where the successor's was freed, that one's was.
        """
        data = self._bytes(end.version, store)
        same = data is not None and digest_of(data) == (end.digest or digest_of(LOST))
        return same and self._is_there(end.readable, store)

    def _end(self, store: RetryingStore, hint: Version | None) -> Manifest | BrokenEnd | None:
        last, known = self._search(store, hint), witnessed(self.store)
        if last is None or last.version < known.version:
            # Somebody has gone on meanwhile, `hint` led to sleepers' manifests on freed numbers, or one was lost: what
            # is known of was there before this search.
            last = self._search(store, None, known.version) if known.version else None
        unbroken = Version(0) if last is None else last.version
        if unbroken < known.version or (last is not None and last.manifest is None):
            return self._broken(last or _Last(unbroken), known, store)
        return None if last is None else last.manifest

    def _broken(self, last: _Last, known: Witnessed, store: RetryingStore) -> BrokenEnd:
        """What is known of a chain whose unbroken range ends with `last`, which is not the newest, or is damaged."""
        version = max(last.version, known.version)
        missing = manifest_name(Version(last.version + 1))
        damage = last.damage or (
            f"a manifest is missing, although it was there: restore it from a backup, or go back to an epoch before "
            f"it. object={missing}, known_to_be_used={version}, store={self.store.url}"
        )
        digest = None
        for number in range(version, max(0, version - _LOST_MAX), -1):
            data = self._bytes(Version(number), store)
            if data is None:
                continue
            digest = digest_of(data) if number == version else digest
            try:
                readable = self._decoded(Version(number), data)
            except CorruptStateError:
                continue
            if version - last.version > _LOST_MAX:
                break
            return BrokenEnd(version, last.version, readable, max(readable.term, known.term), digest, damage)
        raise CorruptStateError(
            f"too many of the stream's manifests are damaged or missing to go on from any: restore its folder from a "
            f"backup, or remove it, and the stream begins anew. damage={damage}"
        )

    def _search(self, store: RetryingStore, hint: Version | None, known: Version | None = None) -> _Last | None:
        """One search. Asks for another by `StoreUnavailableError` where the range moved on or a list was late.

        `known` is a version that was there, if perhaps not in a list that is late.
        """
        for start in (hint, FIRST):
            if start is not None and self._exists(start, store):
                found = self._last_from(start, store)
                # Version 1 leads on only while nothing was ever deleted; later it can only be a sleeper's.
                if found and (start != FIRST or not self._is_trimmed(store)):
                    return found
        # Read after version 1 was found missing: whoever deletes that has created this before.
        trimmed = self._is_trimmed(store)
        listed = {version for name in store.list(MANIFESTS) if (version := parse_manifest_name(name)) is not None}
        if not listed and not trimmed:
            return None
        for start in sorted(listed | ({known} if known else set()), reverse=True):
            if self._exists(start, store) and (found := self._last_from(start, store)):
                return found
        raise StoreUnavailableError(
            f"the stream's manifests moved on while they were looked for: try again. store={self.store.url}"
        )

    def _last_from(self, start: Version, store: RetryingStore) -> _Last | None:
        """The manifest at the end of the range that `start` is in; None where that is not, or no longer, the newest."""
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
        # That the next is absent counts only if this one is present afterwards: numbers are freed from below.
        data = self._bytes(present, store)
        if data is None:
            return None
        if present != FIRST and not self._exists(Version(present - 1), store):
            return None
        try:
            return _Last(present, self._decoded(present, data))
        except CorruptStateError as error:
            return _Last(present, damage=str(error))

    def _is_trimmed(self, store: RetryingStore) -> bool:
        return store.exists(TRIMMED)

    def _bytes(self, version: Version, store: RetryingStore) -> bytes | None:
        """The bytes that lie at this number; None where there are none."""
        try:
            return store.get(manifest_name(version))
        except ObjectMissingError:
            return None

    def _exists(self, version: Version, store: RetryingStore) -> bool:
        return store.exists(manifest_name(version))

    def _decoded(self, version: Version, data: bytes) -> Manifest:
        name = manifest_name(version)
        if data == LOST:
            raise CorruptStateError(
                f"a manifest was lost, and a rollback has left it behind: restore it from a backup, or go back to an "
                f"epoch before it. object={name}, store={self.store.url}"
            )
        manifest = decode_manifest(data, name)
        if manifest.version != version:
            raise CorruptStateError(
                f"a manifest lies under another's name: restore the folder from a backup. "
                f"object={name}, version={manifest.version}, store={self.store.url}"
            )
        return manifest
