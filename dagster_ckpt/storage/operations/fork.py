"""Forking a stream: a new one that begins with an epoch of it and copies nothing.

A fork pins its epoch in every stream whose files it will name, then creates its version 1: that one create makes it.
Each pin is written first and validated afterwards, like all pins (`pins`), by what kept its epoch until then: the
origin still retains the epoch, or a validated pin of it exists; or, in an ancestor's folder, the pin with which the
origin keeps its files. The pins hold the unique identity of the new stream. So a crash

    after a pin         leaves that pin, and no stream. It keeps its epoch's files until a fork to the same name removes
                        it, or a user unpins it
    after version 1     leaves the fork; its first writer waits for a lease that was never written to lapse, and
                        subscribes to the streams that it reads

A pin is an orphan once another stream has the name in the pin: no stream with the pin's identity can appear any more.
"""

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial

from dagster_ckpt.clock import Clock
from dagster_ckpt.errors import CheckpointError, CorruptStateError, FencedError, InvalidPipelineError
from dagster_ckpt.ids import EMPTY, Nonce, StreamUuid
from dagster_ckpt.protocol.epochs.pin import ForkId, Pin, PinVerdict, encode_pin
from dagster_ckpt.protocol.epochs.subscriber import Subscriber
from dagster_ckpt.protocol.epochs.upstream import UpstreamPosition
from dagster_ckpt.protocol.manifest.manifest import Ancestor, BackfillStatus, Consumed, Manifest
from dagster_ckpt.protocol.object_names import fork_pin_name, parts_of_name, pin_name, verdict_name
from dagster_ckpt.protocol.transitions.edits import Forking, Stamp, fork_manifest, forked_empty
from dagster_ckpt.protocol.transitions.manifest_rules import check_successor
from dagster_ckpt.storage.chain.damaged_end import newest_known
from dagster_ckpt.storage.chain.manifest_chain import ManifestChain
from dagster_ckpt.storage.operations.manual_opening import close_by_hand
from dagster_ckpt.storage.retention_refs.ancestors import all_ancestors_named, ancestors_folder
from dagster_ckpt.storage.retention_refs.pins import find_pin, forks_pinned, is_kept, read_pins
from dagster_ckpt.storage.retention_refs.subscribers import subscribe
from dagster_ckpt.storage.retention_refs.upstream_log import NothingFollowsError, UpstreamLog
from dagster_ckpt.storage.stores.folder import stream_folder
from dagster_ckpt.storage.stores.object_store import ObjectStore
from dagster_ckpt.storage.stores.probe import prove_atomic_create
from dagster_ckpt.storage.stores.retry import Patience, RetryingStore, RetrySpan

_log = logging.getLogger(__name__)


def fork_stream(root: ObjectStore, origin: ManifestChain, shown: Manifest, stream: str) -> Manifest:
    """Create `stream`, whose epoch 1 shows what `shown` does, the manifest of a retained or pinned epoch.

    Returns version 1. `root` is the store that holds both. Works beside a live writer of the origin, and if its newest
    manifest is damaged. Raises `InvalidPipelineError`, and nothing has changed, for an invalid or used name and for an
    epoch that was retired meanwhile; `StoreUnavailableError`: then the fork may exist, or its pins.
    """
    return _Fork(root, origin, _target(root, origin, stream), stream).of(shown)


def fork_empty(root: ObjectStore, origin: ManifestChain, newest: Manifest, stream: str) -> Manifest:
    """Create `stream`, empty as the stream of `newest` once was, for whatever pipeline opens it first.

    Raises as `fork_stream` does.
    """
    return _Fork(root, origin, _target(root, origin, stream), stream).of_nothing(newest)


def is_there(root: ObjectStore, fork: ForkId, clock: Clock, patience: Patience) -> bool:
    """Whether the stream that a pin is for exists. If none of its manifests can be read, it counts as existing."""
    try:
        end = ManifestChain(stream_folder(root, fork.stream), clock, patience).end()
        return end is not None and newest_known(end).uuid == fork.uuid
    except CorruptStateError:
        return True


def _target(root: ObjectStore, origin: ManifestChain, stream: str) -> ManifestChain:
    """The fork's chain, which is still empty."""
    if not parts_of_name(stream):
        raise InvalidPipelineError(
            f"not a stream's name: write an asset key's parts, none of them empty, joined by /. stream={stream!r}"
        )
    chain = ManifestChain(stream_folder(root, stream), origin.clock, origin.patience)
    try:
        is_taken = chain.end() is not None
    except CorruptStateError:
        is_taken = True
    if is_taken:
        raise _taken_error(chain, stream)
    prove_atomic_create(origin.store, origin.clock)
    return chain


def _taken_error(chain: ManifestChain, stream: str) -> InvalidPipelineError:
    return InvalidPipelineError(
        f"there is a stream of this name already: choose another name. stream={stream!r}, folder={chain.store.url}"
    )


class _Fork:
    def __init__(self, root: ObjectStore, origin: ManifestChain, target: ManifestChain, stream: str) -> None:
        self._root = root
        self._origin = origin
        self._target = target
        self._id = ForkId(stream, StreamUuid(origin.clock.unique()))
        self._name = fork_pin_name(self._id.uuid)
        self._nonce = Nonce(origin.clock.unique())
        self._stamp = Stamp(Nonce(origin.clock.unique()), origin.clock.now_ms())
        self._span = RetrySpan(origin.clock, origin.patience)
        self._pinned: list[ObjectStore] = []

    def of(self, shown: Manifest) -> Manifest:
        if shown.backfill.status is BackfillStatus.CREATING:
            raise InvalidPipelineError(
                f"the stream is still being filled at this epoch, from a snapshot that is kept for it alone: fork a "
                f"later epoch. stream={shown.stream}, epoch={shown.epoch}"
            )
        # The origin first: while its epoch is pinned, the origin keeps the pins that keep its ancestors' files.
        self._pin(self._origin.store, shown, partial(self._is_kept, shown))
        for each in shown.ancestors:
            self._pin_ancestor(each, shown)
        # Also ancestors without needed files: the state has numbers that were counted since their epochs.
        ancestors = (*shown.ancestors, Ancestor(shown.uuid, shown.stream, shown.epoch))
        return self._create(fork_manifest(shown, Forking(self._id.stream, self._id.uuid, ancestors), self._stamp))

    def of_nothing(self, newest: Manifest) -> Manifest:
        ancestors = (Ancestor(newest.uuid, newest.stream, EMPTY),)
        return self._create(forked_empty(newest, Forking(self._id.stream, self._id.uuid, ancestors), self._stamp))

    def _is_kept(self, shown: Manifest) -> bool:
        """Whether another than this fork keeps the epoch: the origin retains it, or a validated pin has it."""
        chain = self._origin
        end = chain.end()
        newest = None if end is None else newest_known(end)
        if newest is not None and newest.uuid == shown.uuid and shown.epoch in {each.epoch for each in newest.retained}:
            return True
        pins = [pin for pin in read_pins(chain) if pin.manifest == shown and pin.fork != self._id]
        return any(self._is_validated(pin) for pin in pins)

    def _is_validated(self, pin: Pin) -> bool:
        with suppress(CorruptStateError):  # what cannot be read shows nothing
            return is_kept(self._origin, pin)
        return False

    def _pin_ancestor(self, ancestor: Ancestor, shown: Manifest) -> None:
        """Keep an ancestor's files, if the origin needs any, by a pin beside the origin's pin."""
        store, chain = ancestors_folder(self._root, ancestor), self._origin
        theirs = replace(chain, store=store)
        pin = find_pin(theirs, ancestor.pin_of(shown.uuid))
        if pin is not None and pin.manifest.uuid == ancestor.uuid:
            self._pin(store, pin.manifest, lambda: find_pin(theirs, pin.name) == pin)
            return
        if ancestor.uuid not in all_ancestors_named(chain, shown):
            return
        self._release()
        raise CorruptStateError(
            f"the pin that kept this fork's files in the stream that it was forked from was removed: they may be "
            f"gone. stream={shown.stream}, forked_from={ancestor.stream}, pin={ancestor.pin_of(shown.uuid)}"
        )

    def _pin(self, store: ObjectStore, manifest: Manifest, is_kept: Callable[[], bool]) -> None:
        data = encode_pin(Pin(self._name, self._stamp.time_ms, manifest, self._nonce, self._id))
        # The name is unique: an existing pin is ours, from a try whose reply was lost.
        self._retrying(store).put_if_absent(pin_name(self._name), data)
        self._pinned.append(store)
        if not is_kept():
            self._release()
            raise InvalidPipelineError(
                f"the epoch was retired while it was forked: choose a later one. stream={manifest.stream}, "
                f"epoch={manifest.epoch}, store={store.url}"
            )
        self._retrying(store).put_if_absent(verdict_name(self._nonce), PinVerdict.KEPT.value)

    def _create(self, first: Manifest) -> Manifest:
        check_successor(None, first)
        try:
            self._target.create(None, first)
        except FencedError as error:
            # Another writer may have gone on from our manifest before we read it back.
            if not is_there(self._root, self._id, self._origin.clock, self._origin.patience):
                self._release()
                raise _taken_error(self._target, self._id.stream) from error
        close_by_hand(self._target, first, f"forked from epoch {first.ancestors[-1].epoch}")
        for consumed in first.consumed:
            if consumed.epoch > EMPTY:  # otherwise it begins with the upstream's newest table
                self._subscribe(first, consumed)
        self._remove_orphans()
        return first

    def _subscribe(self, first: Manifest, consumed: Consumed) -> None:
        """Keep an upstream's log from where the fork goes on: its first writer may start long after this.

        So far the origin has kept it, if it can go back to the epoch.
        """
        upstream = ManifestChain(stream_folder(self._root, consumed.stream), self._origin.clock, self._origin.patience)
        at = UpstreamPosition.from_consumed(consumed)
        try:
            log = UpstreamLog(upstream, consumed.stream)
            log.check(at)
            subscribe(upstream, Subscriber(first.stream, first.uuid, at.epoch))
            log.check(at)
        except (CheckpointError, NothingFollowsError) as error:  # the fork is there
            _log.warning(
                "what the fork reads may not be kept for it: its first start reports whether anything is missing, and "
                "what to do. fork=%s, upstream=%s, consumed=%s, reason=%s",
                first.stream,
                consumed.stream,
                consumed.epoch,
                error,
            )

    def _remove_orphans(self) -> None:
        """Remove the pins of earlier forks to the same name that failed or were removed."""
        try:
            for store in self._pinned or [self._origin.store]:
                for name, fork in forks_pinned(replace(self._origin, store=store)):
                    if fork.stream == self._id.stream and fork != self._id:
                        self._retrying(store).delete(name)
        except CheckpointError as error:  # the fork is there
            _log.warning("the pins of earlier forks to this name were not removed. fork=%s, reason=%s", self._id, error)

    def _release(self) -> None:
        """Remove this fork's pins: it has failed for good."""
        for store in self._pinned:
            self._retrying(store).delete(pin_name(self._name))

    def _retrying(self, store: ObjectStore) -> RetryingStore:
        return RetryingStore(store, lambda: self._span)
