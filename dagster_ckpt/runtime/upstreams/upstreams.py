"""The driver and its upstreams before each query: it subscribes, pins a snapshot, and checks them.

All of it is repeated at each start. A kill in between leaves a subscriber, and perhaps an extra pin, in the upstream:
the next start reuses the one and removes the other.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

from dagster_ckpt.clock import Clock
from dagster_ckpt.errors import (
    CheckpointError,
    CorruptStateError,
    FencedError,
    IncompatibleStateError,
    InvalidPipelineError,
    StoreUnavailableError,
)
from dagster_ckpt.history.damage.damage_advice import go_back, with_advice
from dagster_ckpt.ids import EMPTY, Epoch, StreamUuid, Term, Version
from dagster_ckpt.protocol.epochs.lineage import lineage, lineage_epochs
from dagster_ckpt.protocol.epochs.subscriber import Subscriber
from dagster_ckpt.protocol.epochs.upstream import (
    FORMAT,
    Reader,
    Trouble,
    UpstreamPosition,
    backfill_pin,
    backfill_pins,
    consumption_by_epoch,
    decode,
    terms_pinned,
)
from dagster_ckpt.protocol.manifest.manifest import Manifest
from dagster_ckpt.runtime.declared.sources import StreamSource
from dagster_ckpt.runtime.upstreams.upstream_damage import NextReads
from dagster_ckpt.storage.chain.manifest_chain import ManifestChain
from dagster_ckpt.storage.retention_refs.pins import find_pin, is_kept, names_of_pins, pin_as_shown, remove_pin
from dagster_ckpt.storage.retention_refs.subscribers import subscribe
from dagster_ckpt.storage.retention_refs.upstream_log import NothingFollowsError, UpstreamLog, snapshot_at
from dagster_ckpt.storage.stores.folder import stream_folder
from dagster_ckpt.storage.stores.object_store import ObjectStore

_TRIES_MAX = 5
_ERRORS_OF_READERS = (CorruptStateError.__name__, NothingFollowsError.__name__)

_REASONS = {
    Trouble.RECREATED: "the upstream is not the stream that was read so far: it was removed and created again",
    Trouble.ROLLED_BACK: "the upstream was rolled back to before what was read of it, or its steps were changed",
    Trouble.DIVERGED: "the upstream does not have the epoch that was read of it: its folder was restored from a backup",
    Trouble.CUT_OFF: "the upstream no longer keeps the change log after what was read of it (max_lag)",
    Trouble.UNPINNED: "the snapshot of the upstream that was being read is gone: it was unpinned, or it was too far "
    "behind (max_lag)",
    Trouble.PLANNED_OTHERWISE: "the upstream was opened with another pipeline since this Dagster run planned how to "
    "read it",
}


@dataclass(frozen=True)
class _Upstream:
    root: ObjectStore
    name: str
    chain: ManifestChain
    log: UpstreamLog

    def is_followed_from(self, at: UpstreamPosition) -> bool:
        """Whether a reader at this position can go on."""
        try:
            self.log.check(at)
        except NothingFollowsError:
            return False
        return True


class Upstreams:
    """The upstreams of one stream. `own` is the stream's chain, `root` the store that all of them are in."""

    def __init__(self, asset: str, sources: Iterable[StreamSource], root: ObjectStore, own: ManifestChain) -> None:
        self._asset = asset
        self._own = own
        names = {source.identity.address for source in sources if source.identity.format == FORMAT}
        self._upstreams = [_upstream(root, name, own.clock) for name in sorted(names)]
        # For each upstream, by the term of its pin, this stream's last epoch that needs the snapshot. A rollback to an
        # epoch in the middle of it reads on from there: the pin stays until the oldest retained epoch is past it.
        self._snapshots: list[tuple[_Upstream, dict[Term, Epoch]]] = []

    def prepare(self, manifest: Manifest) -> None:
        """Make sure that what follows `manifest`, this stream's newest, exists and is kept.

        Raises `IncompatibleStateError`, with the commands that help, where nothing can follow.
        """
        self.hold(manifest)
        self.check(manifest)

    def hold(self, manifest: Manifest) -> None:
        """Make sure that what follows `manifest` is kept, if it still exists: subscribe, and pin a first snapshot."""
        self._snapshots = []
        for upstream in self._upstreams:
            at = _position(manifest, upstream.name)
            with _naming_upstream(upstream):
                newest = upstream.log.newest()
                if at.epoch == EMPTY and at.uuid not in {"", newest.uuid}:
                    raise self._error_of(NothingFollowsError(Trouble.RECREATED, at), upstream, at, manifest)
                # Of an upstream that was rolled back or replaced, epochs before the consumed one may be needed.
                begins = newest.epoch if at.epoch == EMPTY else min(at.epoch, newest.epoch)
                # In this order: the log after the pinned epoch is then kept already.
                subscribe(upstream.chain, Subscriber(manifest.stream, manifest.uuid, begins))
                if at.epoch == EMPTY:
                    _pin_snapshot(upstream, Reader.of(manifest))
                pinned = _pinned_terms(upstream, manifest)
            if pinned:
                self._release(upstream, pinned, manifest)

    @contextmanager
    def snapshot(self, manifest: Manifest) -> Iterator[Manifest]:
        """The newest manifest of the only upstream, whose table is kept within the block; `manifest` is this stream's.

        What this stream has read may not be in the upstream's lineage any more. A kill leaves a pin, which `hold`
        removes in the next term.
        """
        [upstream] = self._upstreams
        reader = Reader.of(manifest)
        with _naming_upstream(upstream):
            shown = _pin_snapshot(upstream, reader)
        yield shown
        _remove_pin(upstream, backfill_pin(reader.stream, reader.term))

    def check(self, manifest: Manifest) -> None:
        """Raise `IncompatibleStateError`, with the commands that help, where nothing can follow `manifest`."""
        for upstream in self._upstreams:
            # Not only the least: an upstream read in several ways may have been rolled back to between two positions.
            for at in sorted(_positions(manifest, upstream.name), key=_how_far):
                if at.epoch == EMPTY:
                    continue
                try:
                    with _naming_upstream(upstream):
                        upstream.log.check(at)
                        snapshot_at(upstream.chain, at, Reader.of(manifest))
                except NothingFollowsError as error:
                    raise self._error_of(error, upstream, at, manifest) from None

    def diagnose(self, manifest: Manifest, error_text: str) -> None:
        """Find out whether an upstream made an epoch after `manifest` fail. `error_text` is Spark's error.

        Raises what `check` raises; `CorruptStateError`, with what helps, for a damaged object of an upstream that a
        task, or the process that plans, has found; and `CheckpointError` where the upstream has changed since the query
        was planned.
        """
        self.check(manifest)
        if not any(name in error_text for name in _ERRORS_OF_READERS):
            return
        for upstream in self._upstreams:
            at = _position(manifest, upstream.name)
            if at.epoch == EMPTY:
                at = replace(at, uuid=upstream.log.newest().uuid)
            if Trouble.PLANNED_OTHERWISE in error_text and at.uuid in error_text:
                raise CheckpointError(  # the sensor starts the next Dagster run, which plans again
                    f"{_REASONS[Trouble.PLANNED_OTHERWISE]}: start this stream again. asset={self._asset}, "
                    f"upstream={upstream.name}, consumed={at.epoch}"
                )
            reads = NextReads(upstream.root, upstream.chain, upstream.name, at, Reader.of(manifest))
            try:
                reads.check(error_text)
            except NothingFollowsError as error:
                if at.epoch == EMPTY:
                    continue  # its first snapshot was cut off: the next try pins the newest one
                raise self._error_of(error, upstream, at, manifest) from None
            except CorruptStateError as error:
                helps = reads.remedy(error, restart=go_back(self._own, self._asset, EMPTY))
                raise CorruptStateError(
                    f"what follows in the upstream cannot be read; nothing of this stream is damaged. Restore the "
                    f"object from a backup, or {helps}, asset={self._asset}, consumed={at.epoch}, reason={error}"
                ) from None

    def on_commit(self, manifest: Manifest) -> None:
        """Release snapshots that no retained epoch needs any more. Call it after each epoch."""
        oldest = lineage_epochs(manifest)[0]
        for upstream, needed in self._snapshots:
            for term in _terms_read(manifest, upstream.name) & needed.keys():
                needed[term] = manifest.epoch
            for term in [term for term, last in needed.items() if last < oldest]:
                _remove_pin(upstream, backfill_pin(manifest.uuid, term))
                del needed[term]

    def _release(self, upstream: _Upstream, pinned: set[Term], manifest: Manifest) -> None:
        """Release the snapshots, pinned in these terms, that no retained epoch needs.

        No later epoch will need them: a snapshot is read to its end by the pin of one term, and retired or abandoned
        epochs do not come back.
        """
        needed = dict.fromkeys(_terms_read(manifest, upstream.name) & pinned, manifest.epoch)
        if pinned - needed.keys():
            for entry in lineage(manifest)[:-1]:
                retained = self._retained_manifest(entry.version)
                at = set() if retained is None else _positions(retained, upstream.name)
                for term in _terms_within(at) & pinned:
                    needed[term] = max(needed.get(term, EMPTY), entry.epoch)
            # An overtaken writer may have found another writer's manifest at a version that was freed meanwhile.
            if not self._own.is_newest(manifest):
                return
        for term in pinned - needed.keys():
            _remove_pin(upstream, backfill_pin(manifest.uuid, term))
        self._snapshots.append((upstream, needed))

    def _retained_manifest(self, version: Version) -> Manifest | None:
        """This stream's manifest of that version; None where no rollback can reach it."""
        try:
            return self._own.find(version)
        except CorruptStateError:
            return None

    def _error_of(
        self, reason: NothingFollowsError, upstream: _Upstream, at: UpstreamPosition, manifest: Manifest
    ) -> IncompatibleStateError | FencedError:
        if not self._own.is_newest(manifest):
            return FencedError(
                f"another writer took over the stream, so what this one still read of its upstream was released. "
                f"asset={self._asset}, upstream={upstream.name}, version={manifest.version}"
            )
        newest = upstream.log.newest()
        helps = f"`{go_back(self._own, self._asset, EMPTY)}` reads the upstream again from its beginning"
        went_back = reason.trouble in (Trouble.ROLLED_BACK, Trouble.DIVERGED)
        back = self._still_consistent(upstream, manifest) if went_back else None
        if back is not None:
            helps = f"`{go_back(self._own, self._asset, back)}` goes back as well, {helps}"
        consumed = f"{at.epoch}, newest={newest.epoch}"
        if reason.instead is not None:
            consumed = f"{at.text}, there={reason.instead.text}, newest={newest.epoch}"
        return IncompatibleStateError(
            f"{_REASONS[reason.trouble]}: {helps}; then materialize it. asset={self._asset}, upstream={upstream.name}, "
            f"consumed={consumed}"
        )

    def _still_consistent(self, upstream: _Upstream, manifest: Manifest) -> Epoch | None:
        """This stream's newest epoch that has read no more than is still in the upstream's lineage."""
        for entry in reversed(lineage(manifest)):
            sources = () if (shown := self._retained_manifest(entry.version)) is None else shown.sources
            consumed = [each for each in consumption_by_epoch(sources) if each.stream == upstream.name]
            if consumed and all(map(upstream.is_followed_from, map(UpstreamPosition.from_consumed, consumed))):
                return entry.epoch
        return None


@contextmanager
def _naming_upstream(upstream: _Upstream) -> Iterator[None]:
    """Within it a `CorruptStateError` names the upstream and the command that takes it back."""
    try:
        yield
    except CorruptStateError as error:
        raise with_advice(upstream.root, upstream.chain, upstream.name, error) from error.__cause__


def _upstream(root: ObjectStore, name: str, clock: Clock) -> _Upstream:
    chain = ManifestChain(stream_folder(root, name), clock)
    return _Upstream(root, name, chain, UpstreamLog(chain, name))


def _position(manifest: Manifest, upstream: str) -> UpstreamPosition:
    """How far the upstream was read: the least position, where it is read in several ways."""
    return min(_positions(manifest, upstream), key=_how_far, default=UpstreamPosition(StreamUuid("")))


def _positions(manifest: Manifest, upstream: str) -> set[UpstreamPosition]:
    return {
        decode(source.current)
        for source in manifest.sources
        if source.source.format == FORMAT and source.source.address == upstream and source.current is not None
    }


def _how_far(at: UpstreamPosition) -> tuple[int, bool, int]:
    return at.epoch, not at.in_snapshot, at.part


def _pin_snapshot(upstream: _Upstream, reader: Reader) -> Manifest:
    """Pin the upstream's newest epoch for a stream that reads its table, unless this term has pinned one.

    Returns the pinned manifest, or the upstream's newest if that has no epoch: then everything will be in its log.
    """
    name = backfill_pin(reader.stream, reader.term)
    for _ in range(_TRIES_MAX):
        pin = find_pin(upstream.chain, name)
        if (
            pin is not None
            and is_kept(upstream.chain, pin)
            and upstream.is_followed_from(UpstreamPosition.after(pin.manifest))
        ):
            return pin.manifest
        if pin is not None:
            _remove_pin(upstream, name)
        newest = upstream.log.newest()
        if newest.epoch == EMPTY:
            return newest
        with suppress(InvalidPipelineError):  # it was retired meanwhile: try the newest one again
            return pin_as_shown(upstream.chain, name, newest).manifest
    raise StoreUnavailableError(
        f"the upstream retired its epochs faster than they could be pinned: keep more of them with `retained`. "
        f"upstream={upstream.name}"
    )


def _pinned_terms(upstream: _Upstream, manifest: Manifest) -> set[Term]:
    """The terms in which the stream of this manifest, its newest, has pinned a snapshot; never a later one."""
    names = names_of_pins(upstream.chain, backfill_pins(manifest.uuid))
    return {term for term in terms_pinned(manifest.uuid, names) if term <= manifest.term}


def _terms_read(manifest: Manifest, upstream: str) -> set[Term]:
    """The terms whose snapshots the stream with this newest manifest reads, or will read next: that of its term."""
    at = _positions(manifest, upstream)
    begins = not at or any(each.epoch == EMPTY for each in at)
    return _terms_within(at) | ({manifest.term} if begins else set())


def _terms_within(positions: Iterable[UpstreamPosition]) -> set[Term]:
    return {each.term for each in positions if each.in_snapshot}


def _remove_pin(upstream: _Upstream, name: str) -> None:
    with suppress(InvalidPipelineError):  # another start did
        remove_pin(upstream.chain, name)
