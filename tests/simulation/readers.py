"""Those who read: anybody who looks at a retained epoch, and those who pin one and come back to it much later."""

from typing import TYPE_CHECKING

from dagster_ckpt.errors import CorruptStateError, InvalidPipelineError, StoreUnavailableError
from dagster_ckpt.ids import Version
from dagster_ckpt.protocol.epochs.pin import Pin
from dagster_ckpt.protocol.manifest.manifest import Manifest, Retained
from dagster_ckpt.storage.chain.manifest_chain import ManifestChain
from dagster_ckpt.storage.retention_refs.ancestors import with_ancestors
from dagster_ckpt.storage.retention_refs.pins import remove_pin
from dagster_ckpt.storage.stores.object_store import ObjectMissingError

if TYPE_CHECKING:
    from tests.simulation.scheduler import Process
    from tests.simulation.stream import SimulatedStream


def read_again_and_again(stream: "SimulatedStream", process: "Process") -> None:
    """Choose a retained epoch and read all of it. What is missing within the grace period is a broken promise."""
    world = stream.world
    clock, chain = world.clock_of(process), stream.chain_of(process)
    hint: Version | None = None
    while True:
        clock.sleep_ms(round(world.character.grace_ms * world.chance.random()))
        began_ms = world.scheduler.now_ms
        try:
            newest = chain.newest(hint)
            if newest is None or not newest.retained:
                continue
            hint = newest.version
            _read_retained(stream, process, chain, world.chance.choice(newest.retained).version, began_ms)
        except StoreUnavailableError:
            continue


def pin_again_and_again(stream: "SimulatedStream", process: "Process") -> None:
    """Pin a retained epoch; read it after any time; let it go."""
    world = stream.world
    clock, chain, chance = world.clock_of(process), stream.chain_of(process), world.chance
    while True:
        clock.sleep_ms(round(world.character.grace_ms * chance.random()))
        # A name of its own each time: what asks to remove a pin may arrive late, and would remove the next of its name.
        name = f"pin-{clock.unique()}"
        try:
            newest = chain.newest()
            if newest is None or not newest.retained:
                continue
            pin = _pin(stream, chain, name, chance.choice(newest.retained))
            if pin is None:
                continue
            stream.oracle.heard_of_pin(name, pin.manifest)
            clock.sleep_ms(round(world.character.grace_ms * chance.choice([0, 0.5, 3])))
            _read_pinned(stream, process, pin.manifest)
            if chance.random() < 0.7:
                stream.oracle.let_go(name)
                remove_pin(chain, name)
        except StoreUnavailableError:
            continue


def _read_retained(
    stream: "SimulatedStream", process: "Process", chain: ManifestChain, version: Version, began_ms: int
) -> None:
    try:
        _read(stream, process, chain.read(version))
        stream.oracle.counts["epochs read"] += 1
    except (CorruptStateError, ObjectMissingError) as error:
        if stream.world.scheduler.now_ms - began_ms < stream.world.character.grace_ms:
            stream.oracle.missed(str(error), stream.world.scheduler.this())


def _pin(stream: "SimulatedStream", chain: ManifestChain, name: str, epoch: Retained) -> Pin | None:
    """The pin; None where the epoch was retired before it could be pinned."""
    try:
        return stream.world.parts.write_pin(chain, name, epoch)
    except (InvalidPipelineError, CorruptStateError):
        stream.oracle.counts["pins refused"] += 1
        return None


def _read_pinned(stream: "SimulatedStream", process: "Process", manifest: Manifest) -> None:
    try:
        _read(stream, process, manifest)
    except ObjectMissingError as error:
        stream.oracle.missed(f"a pinned file: {error}", stream.world.scheduler.this())


def _read(stream: "SimulatedStream", process: "Process", manifest: Manifest) -> None:
    store = with_ancestors(stream.store_of(process), stream.world.root_of(process), manifest.ancestors)
    for name in stream.oracle.files_of(manifest):
        store.get(name)
