"""Pins in the store. A pin is written first and validated afterwards, so that no collector can come in between.

To retire an epoch, a writer commits a manifest that no longer retains it. A collector waits for a grace period, and
only then reads the pins. So every collector that could delete the epoch sees a pin that existed while it was retained.
What validating finds is created as a second object, the pin's verdict. Nothing else tells a pin that keeps its epoch
from one whose writer slept for longer than the grace period. A crash

    after the pin       leaves one that most likely keeps its epoch. It can be read, and reading reports what is
                        missing; nothing is built on it: no fork, no rollback. The same call again validates it, while
                        the epoch is retained
    after the verdict   leaves what was asked for; or a pin that came too late, which has to be unpinned

A fork writes a pin under a unique name (`fork`). Only the fork may release that pin.

Listing pins is expensive on a remote store. So each change from outside of a writer also overwrites one small mark,
which a reader compares with the one that it saw last. A crash in between leaves a change without a mark: the mark is
advice, and a reader lists the pins from time to time anyway.
"""

import json
import logging
from collections.abc import Iterator

from dagster_ckpt.errors import InvalidPipelineError, StoreUnavailableError
from dagster_ckpt.ids import Nonce
from dagster_ckpt.protocol.epochs.pin import (
    ForkId,
    Pin,
    PinVerdict,
    decode_fork,
    decode_pin,
    decode_verdict,
    encode_pin,
)
from dagster_ckpt.protocol.manifest.manifest import Manifest, Retained
from dagster_ckpt.protocol.manifest.references import references
from dagster_ckpt.protocol.object_names import (
    FORK_PINS,
    NAME_BYTES_MAX,
    PINS,
    PINS_CHANGED,
    parse_pin_name,
    pin_name,
    verdict_name,
)
from dagster_ckpt.storage.chain.manifest_chain import ManifestChain
from dagster_ckpt.storage.stores.object_store import ObjectMissingError, ObjectStore

_log = logging.getLogger(__name__)


def write_pin(chain: ManifestChain, name: str, epoch: Retained) -> Pin:
    """Keep a retained epoch readable under that name until it is unpinned. To pin it again changes nothing.

    Raises `InvalidPipelineError` if the name already pins another epoch, or if the epoch was retired meanwhile: then
    nothing is pinned.
    """
    _check_name(name, chain.store)
    store = chain.span()
    manifest = chain.find(epoch.version)
    if manifest is None:
        if not _is_retained(chain, epoch):
            raise _retired_error(name, epoch, store)
        manifest = chain.read(epoch.version)
    return _pin_in_store(chain, _new_pin(chain, name, manifest), epoch)


def pin_as_shown(chain: ManifestChain, name: str, shown: Manifest, fork: ForkId | None = None) -> Pin:
    """Keep the epoch of a manifest under that name as that one shows it: its columns may be others since its commit.

    `fork` is a stream that will name its files. The same again changes nothing. Raises as `write_pin` does.
    """
    epoch = next(entry for entry in shown.retained if entry.epoch == shown.epoch)
    return _pin_in_store(chain, _new_pin(chain, name, shown, fork), epoch)


def hold_epoch(chain: ManifestChain, name: str, shown: Manifest) -> None:
    """Keep a pinned epoch under a new name, without a verdict: nothing is built on it. The same again changes nothing.

    See after it whether one of the other pins is still there.
    """
    chain.span().put_if_absent(pin_name(name), encode_pin(_new_pin(chain, name, shown)))


def let_go(chain: ManifestChain, name: str) -> None:
    """Remove what `hold_epoch` has written, if the store answers: what is done by then stays done."""
    try:
        chain.span().delete(pin_name(name))
    except StoreUnavailableError as error:
        _log.warning("a pin is no longer needed, and was not removed: unpin it. pin=%s, reason=%s", name, error)


def _new_pin(chain: ManifestChain, name: str, shown: Manifest, fork: ForkId | None = None) -> Pin:
    return Pin(name, chain.clock.now_ms(), shown, Nonce(chain.clock.unique()), fork)


def _pin_in_store(chain: ManifestChain, pin: Pin, epoch: Retained) -> Pin:
    """The pin in the store, once it is known to keep its epoch: this one, or another of the same epoch."""
    name, store, ours = pin.name, chain.span(), pin.nonce
    if not store.put_if_absent(pin_name(name), encode_pin(pin)):
        there = _read(store, pin_name(name))
        if there is None or not _keeps_the_same(there, pin):
            raise InvalidPipelineError(
                f"this name is taken by another pin: unpin it first, or choose another name. pin={name!r}, "
                f"epoch={epoch.epoch}, pinned={there and there.manifest.epoch}, store={store.url}"
            )
        if is_kept(chain, there):
            return there
        # Ours, from a try whose reply was lost, or one that was never validated.
        pin = there
    if _judge(chain, pin, epoch) is not PinVerdict.KEPT:
        if pin.nonce == ours:
            store.delete(pin_name(name))
        raise _retired_error(name, epoch, store)
    return pin


def _keeps_the_same(there: Pin, pin: Pin) -> bool:
    """Whether a pin of the same name does what this one would: of a fork's, the manifest may be a later opening's."""
    if pin.fork is None:
        return there.manifest == pin.manifest
    kept, wanted = ({ref.name for _, ref in references(each.manifest)} for each in (there, pin))
    return (there.fork, there.manifest.epoch, kept) == (pin.fork, pin.manifest.epoch, wanted)


def _check_name(name: str, store: ObjectStore) -> None:
    if not name:
        raise InvalidPipelineError(f"a pin needs a name that is not empty. store={store.url}")
    if name.startswith(FORK_PINS):
        raise InvalidPipelineError(
            f"names that begin with {FORK_PINS!r} are reserved for forks: choose another. pin={name!r}, "
            f"store={store.url}"
        )
    if len(pin_name(name).rpartition("/")[2]) > NAME_BYTES_MAX:
        raise InvalidPipelineError(
            f"a pin's name is too long to name an object (a letter outside a-z, 0-9, _ and - takes 3 to 12 bytes): "
            f"choose a shorter one. pin={name!r}, bytes_max={NAME_BYTES_MAX}"
        )


def is_kept(chain: ManifestChain, pin: Pin) -> bool:
    """Whether a pin keeps its epoch for certain, so that more can be built on it.

    Raises `CorruptStateError` if the verdict is damaged.
    """
    return _verdict(chain, pin.nonce) is PinVerdict.KEPT


def _judge(chain: ManifestChain, pin: Pin, epoch: Retained) -> PinVerdict | None:
    """The verdict on a pin that was there before this call. If several are written at once, the first stands."""
    found = PinVerdict.KEPT if _is_retained(chain, epoch) else PinVerdict.LATE
    created = chain.span().put_if_absent(verdict_name(pin.nonce), found.value)
    return found if created else _verdict(chain, pin.nonce)


def _verdict(chain: ManifestChain, nonce: Nonce) -> PinVerdict | None:
    """None: the pin was not validated yet."""
    name, store = verdict_name(nonce), chain.span()
    try:
        return decode_verdict(store.get(name), name)
    except ObjectMissingError:
        return None


def _is_retained(chain: ManifestChain, epoch: Retained) -> bool:
    newest = chain.newest()
    return newest is not None and epoch in newest.retained


def _retired_error(name: str, epoch: Retained, store: ObjectStore) -> InvalidPipelineError:
    return InvalidPipelineError(
        f"the epoch was retired while it was pinned: choose a later one. pin={name!r}, epoch={epoch.epoch}, "
        f"store={store.url}"
    )


def remove_pin(chain: ManifestChain, name: str) -> None:
    """Release the pinned epoch. Raises `InvalidPipelineError` if there is no such pin.

    Its verdict is left to the collector.
    """
    store = chain.span()
    if not store.exists(pin_name(name)):
        pins = [pin.name for pin in read_pins(chain)]
        raise InvalidPipelineError(f"there is no such pin. pin={name!r}, pins={pins}, store={store.url}")
    store.delete(pin_name(name))


def find_pin(chain: ManifestChain, name: str) -> Pin | None:
    """The pin of that name; None if there is none. Raises `CorruptStateError` if it is damaged."""
    return _read(chain.span(), pin_name(name))


def names_of_pins(chain: ManifestChain, prefix: str) -> list[str]:
    """The names of all pins that start with `prefix`, sorted."""
    return sorted(name for name in map(parse_pin_name, chain.span().list(PINS)) if name.startswith(prefix))


def read_pins(chain: ManifestChain) -> list[Pin]:
    """All pins of a stream, sorted by name. Raises `CorruptStateError` if one is damaged."""
    store = chain.span()
    found = (_read(store, name) for name in sorted(store.list(PINS)))
    return [pin for pin in found if pin is not None]


def settled_pins(chain: ManifestChain) -> list[Pin]:
    """All pins, sorted by name, for one who removes what none of them keeps. Raises as `read_pins` does.

    One that goes while they are read may have left its files to another, which a later list shows. So they are read
    again once for each that goes meanwhile, however long a list shows it.
    """
    gone = set[str]()
    while True:
        found = {name: find_pin(chain, name) for name in names_of_pins(chain, "")}
        went = {name for name, pin in found.items() if pin is None}
        if went <= gone:
            return [pin for pin in found.values() if pin is not None]
        gone |= went


def forks_pinned(chain: ManifestChain) -> Iterator[tuple[str, ForkId]]:
    """The object names of pins that forks have written, each with its fork. Raises `CorruptStateError`."""
    store = chain.span()
    for name in store.list(PINS):
        if name.startswith(f"{PINS}/{FORK_PINS}"):
            try:
                fork = decode_fork(store.get(name), name)
            except ObjectMissingError:
                continue
            if fork is not None:
                yield name, fork


def mark_pins_changed(chain: ManifestChain) -> None:
    """Show readers of the mark that the pins were changed a moment ago. A store that does not answer is no error."""
    mark = {"time_ms": chain.clock.now_ms(), "nonce": chain.clock.unique()}
    try:
        chain.span().put(PINS_CHANGED, json.dumps(mark).encode())
    except StoreUnavailableError as error:
        text = "the pins were changed, but not their mark: Dagster's history shows it some minutes later. reason=%s"
        _log.warning(text, error)


def pins_mark(store: ObjectStore) -> bytes:
    """The mark in the stream's folder `store`: other bytes after each change of the pins; none without a change."""
    try:
        return store.get(PINS_CHANGED)
    except ObjectMissingError:
        return b""


def _read(store: ObjectStore, name: str) -> Pin | None:
    """The pin in that object; None if it was removed meanwhile."""
    try:
        return decode_pin(store.get(name), name)
    except ObjectMissingError:
        return None
