"""The committed epochs of a stream, in order, for the streams that follow it. Reads only; `upstream` decides.

Safe beside the stream's writer and collectors: epochs never change, and only the newest manifest decides which of them
count. What disappears during a read was removed by the stream's retention: then no reader can follow any more.
"""

from contextlib import suppress

from dagster_ckpt.errors import CorruptStateError, InvalidPipelineError
from dagster_ckpt.ids import EMPTY, FIRST, Epoch, Version
from dagster_ckpt.protocol.epochs.upstream import (
    Reader,
    Succession,
    Trouble,
    UpstreamPosition,
    may_follow,
    trouble,
)
from dagster_ckpt.protocol.manifest.manifest import Manifest, ManifestKind
from dagster_ckpt.protocol.manifest.references import changes_alone
from dagster_ckpt.protocol.object_names import manifest_name
from dagster_ckpt.storage.chain.manifest_chain import ManifestChain
from dagster_ckpt.storage.retention_refs.pins import find_pin

_EPOCHS_KEPT = 1_000
_REFS_KEPT = 20_000
"""References to files of the change log, in all epochs that are kept: about 4 MB."""


class NothingFollowsError(Exception):
    """No reader can follow the position any more; `trouble` is the reason.

    `instead` is the position of what the stream has in place of the epoch, where its history is another one.
    """

    def __init__(self, trouble: Trouble, at: UpstreamPosition, instead: UpstreamPosition | None = None) -> None:
        there = "" if instead is None else f", there={instead.encode()}"
        super().__init__(f"this position can no longer be followed. trouble={trouble}, at={at.encode()}{there}")
        self.trouble = trouble
        self.instead = instead


def snapshot_at(upstream: ManifestChain, at: UpstreamPosition, reader: Reader) -> Manifest | None:
    """The pinned manifest whose table comes next at this position; None if the log comes next.

    Raises `NothingFollowsError` if the snapshot that is being read was removed.
    """
    if at.epoch > EMPTY and not at.in_snapshot:
        return None
    pin = find_pin(upstream, reader.pin_at(at))
    if pin is not None and (at.epoch == EMPTY or at.is_at(pin.manifest)):
        return pin.manifest
    if at.in_snapshot:
        raise NothingFollowsError(Trouble.UNPINNED, at)
    return None


OPEN_WAIT_MS = 120_000
"""Continuous streams that start together open in any order; the sensor waits three minutes for each."""

_LOOK_EVERY_MS = 500


class UpstreamLog:
    """A stream that another one follows. `stream` is its name, `chain` its manifests.

    Every call reads the store, and may raise `StoreUnavailableError` and `CorruptStateError`. What a reader needs of a
    manifest is cached: a manifest that is returned for an epoch has neither its state nor the stream's past.
    """

    def __init__(self, chain: ManifestChain, stream: str) -> None:
        self._chain = chain
        self._stream = stream
        self._newest: Manifest | None = None
        self._read: dict[Version, Manifest] = {}
        self._refs_kept = 0

    def newest(self) -> Manifest:
        """The stream's newest manifest. Raises `InvalidPipelineError` if the stream was never opened."""
        newest = self._chain.newest(None if self._newest is None else self._newest.version)
        if newest is None:
            raise InvalidPipelineError(
                f"this stream feeds another one, but was never materialized: materialize it first. "
                f"stream={self._stream}, store={self._chain.store.url}"
            )
        self._newest = newest
        return newest

    def await_open(self, wait_ms: int) -> Manifest:
        """The newest manifest, once there is one: two that start together may open in any order.

        Raises `InvalidPipelineError` where the stream is still not open after `wait_ms`.
        """
        clock = self._chain.clock
        until_ms = clock.monotonic_ms() + wait_ms
        while True:
            try:
                return self.newest()
            except InvalidPipelineError:
                if clock.monotonic_ms() >= until_ms:
                    raise
            clock.sleep_ms(_LOOK_EVERY_MS)

    def check(self, at: UpstreamPosition) -> Manifest:
        """The newest manifest, if it still builds on that position. Raises `NothingFollowsError` if not.

        A damaged manifest in between is no reason: reading it says so.
        """
        newest = self.newest()
        if at.epoch == EMPTY:
            self._raise_trouble(newest, at)
        else:
            # Manifests are removed oldest first: if the consumed epoch's manifest exists, all later ones do.
            with suppress(CorruptStateError):
                self.epochs_after(newest, at, epochs_max=1)
        return newest

    def following(self, at: UpstreamPosition, epochs_max: int, until: Epoch | None = None) -> list[Manifest]:
        """The next epochs after that position, oldest first: at most `epochs_max`, and none above `until`.

        Raises `NothingFollowsError` if the position cannot be followed.
        """
        return self.epochs_after(self.newest(), at, epochs_max, until)

    def epochs_after(
        self, newest: Manifest, at: UpstreamPosition, epochs_max: int | None = None, until: Epoch | None = None
    ) -> list[Manifest]:
        """As `following`, in the lineage of the manifest `newest`."""
        self._raise_trouble(newest, at)
        found: list[Manifest] = []
        if newest.epoch == at.epoch:
            return found
        succession = Succession.after(at)
        # If the stream was opened often before its first epoch, the oldest openings may have been retired.
        after = at.epoch if at.epoch > EMPTY else Epoch(self._first(newest) - 1)
        for version in may_follow(newest, after):
            if len(found) == epochs_max or (until is not None and version > until):
                break
            manifest = self._manifest(version)
            if manifest is not None and manifest.uuid != at.uuid:  # since `newest` was read
                raise NothingFollowsError(Trouble.RECREATED, at)
            # A fork's first table is in no log.
            if manifest is None or (manifest.kind is ManifestKind.FORK and manifest.epoch != EMPTY):
                raise NothingFollowsError(Trouble.CUT_OFF, at)
            if not succession.admits(manifest):
                raise self._divergence(newest, at, succession.at)
            succession = succession.plus(manifest)
            if manifest.kind.makes_epoch:
                found.append(manifest)
        if found:
            self._raise_cut_off(newest, at, found[0])
        return found

    def _first(self, newest: Manifest) -> Version:
        """The first existing manifest, perhaps a sleeper's on a freed number."""
        if self._exists(FIRST):
            return FIRST
        freed, there = FIRST, newest.version
        while there - freed > 1:
            middle = Version((freed + there) // 2)
            if self._exists(middle):
                there = middle
            else:
                freed = middle
        return there

    def _exists(self, version: Version) -> bool:
        return self._chain.span().exists(manifest_name(version))

    def _version_of(self, newest: Manifest, epoch: Epoch) -> Version:
        """The manifest of an epoch: its own, or that of the rollback that restored it from a pin, long after."""
        retained = next((entry.version for entry in newest.retained if entry.epoch == epoch), None)
        if retained is not None:
            return retained
        for version in may_follow(newest, epoch):
            manifest = self._manifest(version)
            if manifest is None or manifest.kind.makes_epoch:
                break
            if manifest.kind is ManifestKind.ROLLBACK and manifest.epoch == epoch:
                return version
        return Version(epoch)

    def _raise_cut_off(self, newest: Manifest, at: UpstreamPosition, first: Manifest) -> None:
        """Raise `NothingFollowsError` if the numbers of the manifests just read may have been freed before.

        A freed number may hold a sleeper's manifest. Numbers are freed from below, and for a reader that continues
        after an epoch the collector also keeps the manifest of that epoch. After epoch 0 it is the manifest below the
        first epoch, which must have been the stream's first.
        """
        below = self._version_of(newest, at.epoch) if at.epoch > EMPTY else Version(first.version - 1)
        if not self._exists(below) or (at.epoch == EMPTY and first.statistics.total_epochs != 1):
            raise NothingFollowsError(Trouble.CUT_OFF, at)

    def _divergence(self, newest: Manifest, at: UpstreamPosition, last: UpstreamPosition) -> NothingFollowsError:
        """Why what comes after `last`, which follows `at`, is of another history."""
        there = self._chain.find(Version(last.epoch))
        if there is None:  # its number was freed, and what comes next may be a sleeper's
            return NothingFollowsError(Trouble.CUT_OFF, at)
        is_epoch = there.epoch == last.epoch
        return NothingFollowsError(Trouble.DIVERGED, at, UpstreamPosition.after(there if is_epoch else newest))

    def _raise_trouble(self, newest: Manifest, at: UpstreamPosition) -> None:
        why = trouble(newest, at)
        if why is not None:
            instead = UpstreamPosition.after(newest) if why is Trouble.DIVERGED else None
            raise NothingFollowsError(why, at, instead)

    def _manifest(self, version: Version) -> Manifest | None:
        """What a reader needs of the manifest of that version in the stream's lineage; None if it was removed."""
        if version not in self._read:
            manifest = self._chain.find(version)
            if manifest is None:
                return None
            self._keep(version, changes_alone(manifest))
        return self._read[version]

    def _keep(self, version: Version, manifest: Manifest) -> None:
        self._read[version] = manifest
        self._refs_kept += len(manifest.changes)
        while len(self._read) > 1 and (len(self._read) > _EPOCHS_KEPT or self._refs_kept > _REFS_KEPT):
            oldest = min(self._read.keys() - {version})
            self._refs_kept -= len(self._read.pop(oldest).changes)
