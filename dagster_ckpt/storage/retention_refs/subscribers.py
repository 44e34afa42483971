"""Subscribers in the store: who reads a stream's change log, and how far each is.

The object is created before what it protects is read: a subscriber creates it, then reads the newest manifest and
builds on what that retains. To retire an epoch, a writer commits a manifest that no longer retains it. A collector
waits for a grace period and only then reads the subscribers. So every collector that could delete the log after an
epoch sees a subscriber that existed while the epoch was retained.

A subscriber's manifests show how far it is: all that it may ever read again is after what the oldest epoch to which it
can go back has consumed. This position only grows: a late read keeps too much. Before the first epoch, also after a
rollback to 0, the pin of the subscriber's first snapshot holds the position.

A crash right after the create leaves an object that keeps the log from where the stream would have begun. The stream's
next start finds it and goes on. If the stream never starts, it is cut off in the end, or unsubscribed by a user.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from dagster_ckpt.errors import CorruptStateError, InvalidPipelineError
from dagster_ckpt.ids import Epoch, StreamUuid
from dagster_ckpt.protocol.epochs.lineage import lineage
from dagster_ckpt.protocol.epochs.subscriber import Subscriber, decode_subscriber, encode_subscriber, least_consumed
from dagster_ckpt.protocol.epochs.upstream import BACKFILL_PINS, backfill_pin, terms_pinned
from dagster_ckpt.protocol.manifest.manifest import Manifest
from dagster_ckpt.protocol.object_names import SUBSCRIBERS, pin_name, subscriber_name
from dagster_ckpt.storage.chain.manifest_chain import ManifestChain
from dagster_ckpt.storage.retention_refs.pins import find_pin, names_of_pins
from dagster_ckpt.storage.stores.folder import stream_folder
from dagster_ckpt.storage.stores.object_store import ObjectMissingError, ObjectStore

_TRIES_MAX = 5


@dataclass(frozen=True, slots=True)
class SubscriberProgress:
    """How far a subscriber is, in epochs of the stream that it reads.

    `consumed` is final: the subscriber can go back to it, not before it. `read` is what its current epoch has consumed.
    `gone`: its stream is not in the store, or another one has its name. Then both are its first position.
    """

    subscriber: Subscriber
    consumed: Epoch
    read: Epoch
    gone: bool = False


def subscribe(upstream: ManifestChain, subscriber: Subscriber) -> Manifest:
    """Keep the upstream's change log for another stream. Returns the upstream's newest manifest, read afterwards.

    What the manifest retains, and the log after it, is kept from now on. Subscribing again changes nothing. Raises
    `CorruptStateError` if the upstream is damaged, and `InvalidPipelineError` if there is none.
    """
    upstream.span().put_if_absent(subscriber_name(subscriber.uuid), encode_subscriber(subscriber))
    newest = upstream.newest()
    if newest is None:
        raise InvalidPipelineError(f"there is no stream to read: materialize it first. store={upstream.store.url}")
    return newest


def unsubscribe(upstream: ManifestChain, stream: str) -> None:
    """Release what streams of that name keep of `upstream`: the log, and the pins of their first snapshots.

    A stream that still runs may be cut off. Raises `InvalidPipelineError` if no such stream subscribes.
    """
    store = upstream.span()
    subscribers = read_subscribers(upstream)
    named = [subscriber for subscriber in subscribers if subscriber.stream == stream]
    if not named:
        there = sorted({subscriber.stream for subscriber in subscribers})
        raise InvalidPipelineError(
            f"no such stream subscribes to this one. subscriber={stream!r}, subscribers={there}, store={store.url}"
        )
    pins = names_of_pins(upstream, BACKFILL_PINS)
    for subscriber in named:
        # In this order: if a kill leaves the object, the stream can be unsubscribed again.
        mine = [backfill_pin(subscriber.uuid, term) for term in terms_pinned(subscriber.uuid, pins)]
        for name in (*map(pin_name, mine), subscriber_name(subscriber.uuid)):
            store.delete(name)


def read_subscribers(upstream: ManifestChain) -> list[Subscriber]:
    """All subscribers of a stream, sorted by UUID. Raises `CorruptStateError` if one is damaged."""
    store = upstream.span()
    found = (_read(store, name) for name in sorted(store.list(SUBSCRIBERS)))
    return [subscriber for subscriber in found if subscriber is not None]


def find_progress(
    subscribers: Sequence[Subscriber], root: ObjectStore, upstream: ManifestChain, uuid: StreamUuid
) -> list[SubscriberProgress]:
    """How far each subscriber of the stream `upstream` of that UUID is; `root` is the store that holds them.

    Raises `CorruptStateError` if one cannot be read.
    """
    # Before any manifest: a pin is removed only after a manifest records more, or another pin was written.
    pins = names_of_pins(upstream, BACKFILL_PINS) if subscribers else []
    return [_progress(subscriber, pins, root, upstream, uuid) for subscriber in subscribers]


def _progress(
    subscriber: Subscriber, pins: Sequence[str], root: ObjectStore, upstream: ManifestChain, uuid: StreamUuid
) -> SubscriberProgress:
    folder = stream_folder(root, subscriber.stream)
    chain = ManifestChain(folder, upstream.clock, upstream.patience)
    try:
        terms = terms_pinned(subscriber.uuid, pins)
        snapshots = {term: find_pin(upstream, backfill_pin(subscriber.uuid, term)) for term in terms}
        for _ in range(_TRIES_MAX):
            newest = _newest(chain)
            if newest is None or newest.uuid != subscriber.uuid:
                return SubscriberProgress(subscriber, subscriber.epoch, subscriber.epoch, gone=True)
            oldest = _oldest(chain, newest)
            # Only the newest term's: a fenced writer may pin later, which means nothing for the live one.
            snapshot = snapshots.get(newest.term)
            beginning = subscriber.epoch if snapshot is None else snapshot.manifest.epoch
            # But before that has pinned, a delivery's destination may name a snapshot of an earlier term, which its
            # manifests do not show yet.
            pinned = [snapshot] if snapshot else snapshots.values()
            if oldest is not None:
                latest = max((pin.manifest.epoch for pin in pinned if pin is not None), default=beginning)
                read = least_consumed(newest, uuid, latest)
                # The oldest epoch may be older than this beginning: it begins again if its upstream goes back.
                consumed = min(least_consumed(each, uuid, beginning) for each in (newest, oldest))
                return SubscriberProgress(subscriber, consumed, read)
        raise CorruptStateError(f"the manifest of the oldest retained epoch is missing. store={folder.url}")
    except CorruptStateError as error:
        raise CorruptStateError(
            f"a stream that reads this one is damaged, so what it still needs is unknown: restore it from a backup, "
            f"roll it back, or unsubscribe it. subscriber={subscriber.stream!r}, reason={error}"
        ) from error


def _newest(chain: ManifestChain) -> Manifest | None:
    """The newest manifest; None if there is none.

    A stream that is deleted and made again during the look seems to have lost those with greater numbers than it has
    now. So what is damaged is looked at again. Raises `CorruptStateError` if it still is.
    """
    try:
        return chain.newest()
    except CorruptStateError:
        return chain.newest()


def _oldest(chain: ManifestChain, newest: Manifest) -> Manifest | None:
    """The manifest of the oldest epoch to go back to; None if it was retired meanwhile."""
    entries = lineage(newest)
    # Before the first epoch, and right after a rollback to 0, there is none: only the beginning is known.
    return newest if not entries else chain.find(entries[0].version)


def _read(store: ObjectStore, name: str) -> Subscriber | None:
    """The subscriber in that object; None if it was removed meanwhile."""
    try:
        return decode_subscriber(store.get(name), name)
    except ObjectMissingError:
        return None
