"""Subscribers in the store: who reads a stream's change log, and how far each is.

The object comes first, what it protects afterwards: whoever subscribes reads the newest manifest once the object is
there, and builds on what that retains. Whoever retires an epoch commits a manifest that no longer retains it, waits for
a grace period and only then looks for subscribers. So one that was there while its epoch was still retained is seen by
everybody who could collect the log behind it.

How far a subscriber is, its own manifests say: the oldest epoch to which it can go back has consumed so much, and all
that it ever may read again lies behind that. It only grows: a look that comes late keeps too much. Before the first
epoch, also after a rollback to 0, the pin of the snapshot that it begins with says so.

A crash right after the object was created leaves one that keeps the log from where it would have begun. The stream's
next start finds it there and goes on; one that never comes is cut off in the end, or unsubscribed by a person.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from dagster_ckpt.errors import CorruptStateError, InvalidPipelineError
from dagster_ckpt.ids import Epoch, StreamUuid
from dagster_ckpt.protocol.epochs.lineage import lineage
from dagster_ckpt.protocol.epochs.subscriber import Subscriber, consumed_by, decode_subscriber, encode_subscriber
from dagster_ckpt.protocol.epochs.upstream import BACKFILL_PINS, backfill_pin, terms_pinned
from dagster_ckpt.protocol.manifest.manifest import Manifest
from dagster_ckpt.protocol.object_names import SUBSCRIBERS, pin_name, subscriber_name
from dagster_ckpt.storage.chain.manifest_chain import ManifestChain
from dagster_ckpt.storage.holders.pins import find_pin, names_of_pins
from dagster_ckpt.storage.stores.folder import stream_folder
from dagster_ckpt.storage.stores.object_store import ObjectMissingError, ObjectStore

_TRIES_MAX = 5


@dataclass(frozen=True, slots=True)
class SubscriberProgress:
    """How far a subscriber is, in epochs of the stream that it reads.

    `consumed` is for good: it may go back there, and never behind it. `read` is what its current epoch has consumed.
    `gone`: its stream is not in the store, or another one has its name. Then both are where it began.
    """

    subscriber: Subscriber
    consumed: Epoch
    read: Epoch
    gone: bool = False


def subscribe(upstream: ManifestChain, subscriber: Subscriber) -> Manifest:
    """Keep the upstream's change log for another stream: the upstream's newest manifest, read after that was done.

    What the manifest retains, and the log behind it, is kept from now on. For a stream that has subscribed before
    nothing changes. Raises `CorruptStateError` where the upstream is damaged, and `InvalidPipelineError` where there is
    none.
    """
    upstream.span().put_if_absent(subscriber_name(subscriber.uuid), encode_subscriber(subscriber))
    newest = upstream.newest()
    if newest is None:
        raise InvalidPipelineError(f"there is no stream to read: materialize it first. store={upstream.store.url}")
    return newest


def unsubscribe(upstream: ManifestChain, stream: str) -> None:
    """Let go of what any stream of that name keeps of `upstream`: the log, and what it pinned to begin with.

    One that still runs may be cut off. Raises `InvalidPipelineError` where no such stream subscribes.
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
        # In this order: whose pins a kill has left here can be unsubscribed again.
        mine = [backfill_pin(subscriber.uuid, term) for term in terms_pinned(subscriber.uuid, pins)]
        for name in (*map(pin_name, mine), subscriber_name(subscriber.uuid)):
            store.delete(name)


def read_subscribers(upstream: ManifestChain) -> list[Subscriber]:
    """All subscribers of a stream, in the order of their UUIDs. Raises `CorruptStateError` where one is damaged."""
    store = upstream.span()
    found = (_read(store, name) for name in sorted(store.list(SUBSCRIBERS)))
    return [subscriber for subscriber in found if subscriber is not None]


def progress_of(
    subscribers: Sequence[Subscriber], root: ObjectStore, upstream: ManifestChain, uuid: StreamUuid
) -> list[SubscriberProgress]:
    """How far each subscriber of the stream `upstream` of that UUID is; `root` is the store that all of them are in.

    Raises `CorruptStateError` where one cannot be read.
    """
    # Before anybody's manifests: they go only after one of those says more, or another was written.
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
            newest = chain.newest()
            if newest is None or newest.uuid != subscriber.uuid:
                return SubscriberProgress(subscriber, subscriber.epoch, subscriber.epoch, gone=True)
            oldest = _oldest(chain, newest)
            # Only its newest term's: a fenced writer may pin something later, and says nothing for the one that lives.
            snapshot = snapshots.get(newest.term)
            beginning = subscriber.epoch if snapshot is None else snapshot.manifest.epoch
            if oldest is not None:
                read = consumed_by(newest, uuid, beginning)
                # The oldest may be of before it began, which since may have been anew, at an upstream that went back.
                return SubscriberProgress(subscriber, min(read, consumed_by(oldest, uuid, beginning)), read)
        raise CorruptStateError(f"the manifest of its oldest retained epoch is missing. store={folder.url}")
    except CorruptStateError as error:
        raise CorruptStateError(
            f"a stream that reads this one is damaged, so nobody knows what it still needs: restore it from a backup, "
            f"roll it back, or unsubscribe it. subscriber={subscriber.stream!r}, reason={error}"
        ) from error


def _oldest(chain: ManifestChain, newest: Manifest) -> Manifest | None:
    """The manifest of the oldest epoch that can be gone back to; None where it was retired meanwhile."""
    entries = lineage(newest)
    # Before the first epoch, and right after going back to 0, there is none: nothing but the beginning is known.
    return newest if not entries else chain.find(entries[0].version)


def _read(store: ObjectStore, name: str) -> Subscriber | None:
    """The subscriber in that object; None where it was taken away meanwhile."""
    try:
        return decode_subscriber(store.get(name), name)
    except ObjectMissingError:
        return None
