"""Pins in the store. A pin is written first and proved afterwards, so that no collector can come in between.

Whoever retires an epoch commits a manifest that no longer retains it, waits for a grace period and only then looks at
the pins. So a pin that was there while its epoch was still retained is seen by everybody who could collect the epoch.
A crash right after the write leaves a pin that is as good as any other, unless the process had slept for longer than
the grace period before: then reading it says what is missing, and it can be taken away.

A fork pins for itself, under a name that nobody else has (`fork`): nobody but the fork may let go of that.
"""

from collections.abc import Iterator

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.protocol.epochs.pin import ForkId, Pin, decode_fork, decode_pin, encode_pin
from dagster_ckpt.protocol.manifest.manifest import Retained
from dagster_ckpt.protocol.object_names import FORK_PINS, NAME_BYTES_MAX, PINS, parse_pin_name, pin_name
from dagster_ckpt.storage.chain.manifest_chain import ManifestChain
from dagster_ckpt.storage.stores.object_store import ObjectMissingError, ObjectStore


def write_pin(chain: ManifestChain, name: str, epoch: Retained) -> Pin:
    """Keep a retained epoch readable under that name until it is unpinned. To pin the same epoch again changes nothing.

    Raises `InvalidPipelineError` where the name has another epoch already, or the epoch was retired meanwhile: then
    nothing is pinned.
    """
    if not name:
        raise InvalidPipelineError(f"a pin needs a name that is not empty. store={chain.store.url}")
    if name.startswith(FORK_PINS):
        raise InvalidPipelineError(
            f"names that begin with {FORK_PINS!r} are those of forks: choose another. pin={name!r}, "
            f"store={chain.store.url}"
        )
    if len(pin_name(name).rpartition("/")[2]) > NAME_BYTES_MAX:
        raise InvalidPipelineError(
            f"a pin's name is too long to name an object (a letter outside a-z, 0-9, _ and - takes 3 to 12 bytes): "
            f"choose a shorter one. pin={name!r}, bytes_max={NAME_BYTES_MAX}"
        )
    store = chain.span()
    manifest = chain.find(epoch.version)
    if manifest is None:
        if not _is_retained(chain, epoch):
            raise _retired_meanwhile(name, epoch, store)
        manifest = chain.read(epoch.version)
    pin = Pin(name, chain.clock.now_ms(), manifest)
    if not store.put_if_absent(pin_name(name), encode_pin(pin)):
        there = _read(store, pin_name(name))
        if there is None or there.manifest != pin.manifest:
            raise InvalidPipelineError(
                f"this name is taken by another pin: unpin it first, or choose another name. pin={name!r}, "
                f"epoch={epoch.epoch}, pinned={there and there.manifest.epoch}, store={store.url}"
            )
        # By ourselves, from a try whose answer was lost, or by somebody before: either way it has to be proved.
        pin = there
    if not _is_retained(chain, epoch):
        store.delete(pin_name(name))
        raise _retired_meanwhile(name, epoch, store)
    return pin


def _is_retained(chain: ManifestChain, epoch: Retained) -> bool:
    newest = chain.newest()
    return newest is not None and epoch in newest.retained


def _retired_meanwhile(name: str, epoch: Retained, store: ObjectStore) -> InvalidPipelineError:
    return InvalidPipelineError(
        f"the epoch was retired while it was pinned: choose a later one. pin={name!r}, epoch={epoch.epoch}, "
        f"store={store.url}"
    )


def remove_pin(chain: ManifestChain, name: str) -> None:
    """Let the pinned epoch go. Raises `InvalidPipelineError` where there is no such pin."""
    store = chain.span()
    if not store.exists(pin_name(name)):
        pins = [pin.name for pin in read_pins(chain)]
        raise InvalidPipelineError(f"there is no such pin. pin={name!r}, pins={pins}, store={store.url}")
    store.delete(pin_name(name))


def find_pin(chain: ManifestChain, name: str) -> Pin | None:
    """The pin of that name; None where there is none. Raises `CorruptStateError` where it is damaged."""
    return _read(chain.span(), pin_name(name))


def names_of_pins(chain: ManifestChain, prefix: str) -> list[str]:
    """The names of all pins, sorted, that begin so."""
    return sorted(name for name in map(parse_pin_name, chain.span().list(PINS)) if name.startswith(prefix))


def read_pins(chain: ManifestChain) -> list[Pin]:
    """All pins of a stream, by name. Raises `CorruptStateError` where one is damaged."""
    store = chain.span()
    found = (_read(store, name) for name in sorted(store.list(PINS)))
    return [pin for pin in found if pin is not None]


def forks_pinned(chain: ManifestChain) -> Iterator[tuple[str, ForkId]]:
    """The pins' objects that forks have written, and for which stream each did. Raises `CorruptStateError`."""
    store = chain.span()
    for name in store.list(PINS):
        if name.startswith(f"{PINS}/{FORK_PINS}"):
            try:
                fork = decode_fork(store.get(name), name)
            except ObjectMissingError:
                continue
            if fork is not None:
                yield name, fork


def _read(store: ObjectStore, name: str) -> Pin | None:
    """The pin in that object; None where it was taken away meanwhile."""
    try:
        return decode_pin(store.get(name), name)
    except ObjectMissingError:
        return None
