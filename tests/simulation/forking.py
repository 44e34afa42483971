"""Whoever forks: a new stream that begins with an epoch of another, and then goes its own way."""

from typing import TYPE_CHECKING

from dagster_ckpt.errors import CorruptStateError, InvalidPipelineError, StoreUnavailableError
from dagster_ckpt.protocol.manifest.manifest import Manifest
from dagster_ckpt.storage.operations import fork as forks

if TYPE_CHECKING:
    from tests.simulation.scheduler import Process
    from tests.simulation.stream import SimulatedStream


def fork_again_and_again(stream: "SimulatedStream", process: "Process") -> None:
    """Fork a stream, or a fork of it, until all forks of the world are there: again where nobody knows or it fails."""
    world = stream.world
    clock, chance = world.clock_of(process), world.chance
    for fork in world.forks:
        while fork.oracle.newest is None:
            clock.sleep_ms(round(world.character.grace_ms * chance.random()))
            origin = chance.choice([stream, *(each for each in world.forks if each.begun)])
            chain = origin.chain_of(process)
            try:
                shown = _chosen(origin, process)
                if shown is not None:
                    forks.fork_stream(world.root_of(process), chain, shown, fork.name)
            except (StoreUnavailableError, InvalidPipelineError, CorruptStateError) as error:
                # It is there already, or its epoch was retired, perhaps as it was read. Nothing else may be wrong.
                stream.oracle.counts[f"forks: {type(error).__name__}"] += 1
        world.begin_fork(fork)


def _chosen(origin: "SimulatedStream", process: "Process") -> Manifest | None:
    """A retained epoch, or a pinned one; None where there is none."""
    world, chain = origin.world, origin.chain_of(process)
    pinned = list(origin.oracle.pinned.values())
    # Where lists are late, whoever lets go of a pin must wait for a fork of its epoch: here nobody does.
    if pinned and not world.character.faults.late_list and world.chance.random() < 0.3:
        return world.chance.choice(pinned)
    newest = chain.newest()
    if newest is None or not newest.retained:
        return None
    return chain.read(world.chance.choice(newest.retained).version)
