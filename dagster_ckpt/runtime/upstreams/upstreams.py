"""What the driver does about its upstreams before each query: it subscribes, pins a snapshot, and looks for trouble.

All of it is done again at each start. A kill in between leaves a subscriber, or a pin besides, in the upstream: the
next start takes up the one and removes the other.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

from dagster_ckpt.clock import Clock
from dagster_ckpt.errors import (
    CheckpointError,
    CorruptStateError,
    IncompatibleStateError,
    InvalidPipelineError,
    StoreUnavailableError,
)
from dagster_ckpt.history.damage.damage_advice import advised, go_back
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
    consumed_in_each_way,
    decode,
    terms_pinned,
    trouble,
)
from dagster_ckpt.protocol.manifest.manifest import Consumed, Manifest
from dagster_ckpt.runtime.declared.sources import Source
from dagster_ckpt.runtime.upstreams.upstream_damage import NextReads
from dagster_ckpt.storage.chain.manifest_chain import ManifestChain
from dagster_ckpt.storage.holders.pins import find_pin, names_of_pins, remove_pin, write_pin
from dagster_ckpt.storage.holders.subscribers import subscribe
from dagster_ckpt.storage.holders.upstream_log import NothingFollowsError, UpstreamLog, snapshot_at
from dagster_ckpt.storage.stores.folder import stream_folder
from dagster_ckpt.storage.stores.object_store import ObjectStore

_TRIES_MAX = 5
_SAYS_SO = (CorruptStateError.__name__, NothingFollowsError.__name__)

_WHY = {
    Trouble.MADE_ANEW: "the upstream is another stream than the one that was read so far: it was removed and made anew",
    Trouble.ROLLED_BACK: "the upstream was rolled back to before what was read of it",
    Trouble.CUT_OFF: "the upstream no longer keeps the change log behind what was read of it (max_lag)",
    Trouble.UNPINNED: "the snapshot of the upstream that was being read is gone: somebody has unpinned it, or it was "
    "too far behind (max_lag)",
    Trouble.PLANNED_OTHERWISE: "the upstream was opened with another pipeline since this Dagster run planned how to "
    "read it",
}


@dataclass(frozen=True)
class _Upstream:
    root: ObjectStore
    name: str
    chain: ManifestChain
    log: UpstreamLog


class Upstreams:
    """The upstreams of one stream. `own` is the stream's chain, `root` the store that all of them are in."""

    def __init__(self, asset: str, sources: Iterable[Source], root: ObjectStore, own: ManifestChain) -> None:
        self._asset = asset
        self._own = own
        names = {source.identity.address for source in sources if source.identity.format == FORMAT}
        self._upstreams = [_upstream(root, name, own.clock) for name in sorted(names)]
        # Of each upstream, by the term of its pin, the last epoch of the own stream that needs a snapshot. Whoever goes
        # back to one in its midst reads on from there: it stays until the oldest retained epoch is past it.
        self._snapshots: list[tuple[_Upstream, dict[Term, Epoch]]] = []

    def prepare(self, manifest: Manifest) -> None:
        """Make sure that what follows `manifest`, the stream's own newest, is there and stays.

        Raises `IncompatibleStateError` where nothing can follow, and says which commands help.
        """
        self._snapshots = []
        for upstream in self._upstreams:
            at = _position(manifest, upstream.name)
            with _naming_upstream(upstream):
                newest = upstream.log.newest()
                if at.epoch == EMPTY and at.uuid not in {"", newest.uuid}:
                    raise self._what_helps(Trouble.MADE_ANEW, upstream, at, manifest)
                # Of an upstream that went back, or was made anew, less may be needed later than was consumed once.
                begins = newest.epoch if at.epoch == EMPTY else min(at.epoch, newest.epoch)
                # In this order: what is pinned then has its log kept already.
                subscribe(upstream.chain, Subscriber(manifest.stream, manifest.uuid, begins))
                if at.epoch == EMPTY:
                    _pin_snapshot(upstream, Reader.of(manifest))
                pinned = _pinned_terms(upstream, manifest)
            if pinned:
                self._release(upstream, pinned, manifest)
        self.check(manifest)

    def check(self, manifest: Manifest) -> None:
        """Raise `IncompatibleStateError` where nothing can follow `manifest`, and say which commands help."""
        for upstream in self._upstreams:
            # Not only the least: where it is read in several ways, it may have gone back to between two of them.
            for at in sorted(_positions(manifest, upstream.name), key=_how_far):
                if at.epoch == EMPTY:
                    continue
                try:
                    with _naming_upstream(upstream):
                        upstream.log.check(at)
                        snapshot_at(upstream.chain, at, Reader.of(manifest))
                except NothingFollowsError as error:
                    raise self._what_helps(error.trouble, upstream, at, manifest) from None

    def look_into(self, manifest: Manifest, said: str) -> None:
        """Find out whether an epoch after `manifest` failed by an upstream's fault. `said` is what Spark says of it.

        Raises what `check` does, `CorruptStateError` where an object of an upstream is damaged that a task, or the
        process that plans, has met: it says which, and what helps; and `CheckpointError` where the query was planned on
        what the upstream no longer is.
        """
        self.check(manifest)
        if not any(word in said for word in _SAYS_SO):
            return
        for upstream in self._upstreams:
            at = _position(manifest, upstream.name)
            if at.epoch == EMPTY:
                at = replace(at, uuid=upstream.log.newest().uuid)
            if Trouble.PLANNED_OTHERWISE in said and at.uuid in said:
                raise CheckpointError(  # the next Dagster run, which the sensor starts, plans anew
                    f"{_WHY[Trouble.PLANNED_OTHERWISE]}: start this stream again. asset={self._asset}, "
                    f"upstream={upstream.name}, consumed={at.epoch}"
                )
            reads = NextReads(upstream.root, upstream.chain, upstream.name, at, Reader.of(manifest))
            try:
                reads.check(said)
            except NothingFollowsError as error:
                raise self._what_helps(error.trouble, upstream, at, manifest) from None
            except CorruptStateError as error:
                helps = reads.what_helps(error, anew=go_back(self._own, self._asset, EMPTY))
                raise CorruptStateError(
                    f"what follows in the upstream cannot be read; nothing of this stream is damaged. Restore the "
                    f"object from a backup, or {helps}, asset={self._asset}, consumed={at.epoch}, reason={error}"
                ) from None

    def committed(self, manifest: Manifest) -> None:
        """Let snapshots go that no retained epoch is in the midst of any more. Called after each epoch."""
        oldest = lineage_epochs(manifest)[0]
        for upstream, needed in self._snapshots:
            for term in _terms_read(manifest, upstream.name) & needed.keys():
                needed[term] = manifest.epoch
            for term in [term for term, last in needed.items() if last < oldest]:
                _remove_pin(upstream, backfill_pin(manifest.uuid, term))
                del needed[term]

    def _release(self, upstream: _Upstream, pinned: set[Term], manifest: Manifest) -> None:
        """Let the snapshots go, pinned in these terms, that no epoch needs that can be gone back to.

        No later epoch will: a snapshot is read to its end by the pin of one term, and what was retired, or left behind,
        does not come back.
        """
        needed = dict.fromkeys(_terms_read(manifest, upstream.name) & pinned, manifest.epoch)
        if pinned - needed.keys():
            for entry in lineage(manifest)[:-1]:
                retained = self._retained(entry.version)
                at = set() if retained is None else _positions(retained, upstream.name)
                for term in _terms_in_midst(at) & pinned:
                    needed[term] = max(needed.get(term, EMPTY), entry.epoch)
            # Whoever was overtaken may have found somebody else's manifest on a number that was freed meanwhile.
            if not self._own.is_newest(manifest):
                return
        for term in pinned - needed.keys():
            _remove_pin(upstream, backfill_pin(manifest.uuid, term))
        self._snapshots.append((upstream, needed))

    def _retained(self, version: Version) -> Manifest | None:
        """The own manifest of that number; None where nobody can go back to it."""
        try:
            return self._own.find(version)
        except CorruptStateError:
            return None

    def _what_helps(
        self, trouble: Trouble, upstream: _Upstream, at: UpstreamPosition, manifest: Manifest
    ) -> IncompatibleStateError:
        newest = upstream.log.newest()
        helps = f"`{go_back(self._own, self._asset, EMPTY)}` reads the upstream anew"
        back = self._still_consistent(newest, manifest) if trouble is Trouble.ROLLED_BACK else None
        if back is not None:
            helps = f"`{go_back(self._own, self._asset, back)}` goes back as well, {helps}"
        return IncompatibleStateError(
            f"{_WHY[trouble]}: {helps}; then materialize it. asset={self._asset}, upstream={upstream.name}, "
            f"consumed={at.epoch}, newest={newest.epoch}"
        )

    def _still_consistent(self, upstream: Manifest, manifest: Manifest) -> Epoch | None:
        """The stream's newest epoch that has read no more than the upstream still builds on."""
        for entry in reversed(lineage(manifest)):
            sources = () if (shown := self._retained(entry.version)) is None else shown.sources
            consumed = [each for each in consumed_in_each_way(sources) if each.stream == upstream.stream]
            if consumed and all(trouble(upstream, _as_position(each)) is None for each in consumed):
                return entry.epoch
        return None


@contextmanager
def _naming_upstream(upstream: _Upstream) -> Iterator[None]:
    """Within it damage is the upstream's, and so is the way back."""
    try:
        yield
    except CorruptStateError as error:
        raise advised(upstream.root, upstream.chain, upstream.name, error) from error.__cause__


def _upstream(root: ObjectStore, name: str, clock: Clock) -> _Upstream:
    chain = ManifestChain(stream_folder(root, name), clock)
    return _Upstream(root, name, chain, UpstreamLog(chain, name))


def _position(manifest: Manifest, upstream: str) -> UpstreamPosition:
    """How far the upstream was read: the least, where it is read in several ways."""
    return min(_positions(manifest, upstream), key=_how_far, default=UpstreamPosition(StreamUuid("")))


def _positions(manifest: Manifest, upstream: str) -> set[UpstreamPosition]:
    return {
        decode(source.current)
        for source in manifest.sources
        if source.source.format == FORMAT and source.source.address == upstream and source.current is not None
    }


def _how_far(at: UpstreamPosition) -> tuple[int, bool, int]:
    return at.epoch, not at.in_snapshot, at.part


def _as_position(consumed: Consumed) -> UpstreamPosition:
    return UpstreamPosition(consumed.uuid, consumed.epoch)


def _pin_snapshot(upstream: _Upstream, reader: Reader) -> None:
    """Pin the upstream's newest epoch for a stream that has read nothing yet, unless that was done in this term.

    Where the upstream has no epoch yet, all of it will be in its log.
    """
    name = backfill_pin(reader.stream, reader.term)
    for _ in range(_TRIES_MAX):
        pin = find_pin(upstream.chain, name)
        if pin is not None and _can_be_followed(upstream, pin.manifest):
            return
        if pin is not None:
            _remove_pin(upstream, name)
        newest = upstream.log.newest()
        if newest.epoch == EMPTY:
            return
        shown = next(entry for entry in newest.retained if entry.epoch == newest.epoch)
        with suppress(InvalidPipelineError):  # it was retired meanwhile: the next newest one, then
            write_pin(upstream.chain, name, shown)
            return
    raise StoreUnavailableError(
        f"the upstream retired its epochs faster than they could be pinned: keep more of them with `retained`. "
        f"upstream={upstream.name}"
    )


def _can_be_followed(upstream: _Upstream, snapshot: Manifest) -> bool:
    try:
        upstream.log.check(UpstreamPosition(snapshot.uuid, snapshot.epoch))
    except NothingFollowsError:
        return False
    return True


def _pinned_terms(upstream: _Upstream, manifest: Manifest) -> set[Term]:
    """The terms in which the stream of this manifest, its newest, has pinned a snapshot; never a later one."""
    names = names_of_pins(upstream.chain, backfill_pins(manifest.uuid))
    return {term for term in terms_pinned(manifest.uuid, names) if term <= manifest.term}


def _terms_read(manifest: Manifest, upstream: str) -> set[Term]:
    """The terms in whose snapshots the stream is that has this newest manifest, or will be next: its own term's."""
    at = _positions(manifest, upstream)
    begins = not at or any(each.epoch == EMPTY for each in at)
    return _terms_in_midst(at) | ({manifest.term} if begins else set())


def _terms_in_midst(positions: Iterable[UpstreamPosition]) -> set[Term]:
    return {each.term for each in positions if each.in_snapshot}


def _remove_pin(upstream: _Upstream, name: str) -> None:
    with suppress(InvalidPipelineError):  # another start did
        remove_pin(upstream.chain.store, name, upstream.chain.clock, upstream.chain.patience)
