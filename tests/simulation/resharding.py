"""Whoever reshards: a person who gives a stream another number of shards by hand, beside everybody else."""

from typing import TYPE_CHECKING

from dagster_ckpt.errors import FencedError, InvalidPipelineError, StoreUnavailableError
from dagster_ckpt.protocol.lease import ProcessId
from dagster_ckpt.state.engine import Engine
from dagster_ckpt.state.reshard import reshard
from dagster_ckpt.storage.writer.opening import Takeover

if TYPE_CHECKING:
    from tests.simulation.scheduler import Process
    from tests.simulation.stream import SimulatedStream

SHARDS = (1, 2, 4, 8)


def person_in(process: "Process") -> ProcessId:
    """The process in which somebody does something by hand."""
    return ProcessId(process.host, "boot", "pid", process.number, 1)


def reshard_again_and_again(first: "SimulatedStream", process: "Process") -> None:
    """Reshard any stream that is there, politely or not; nothing may go wrong but what the world does."""
    world = first.world
    clock, chance = world.clock_of(process), world.chance
    while True:
        clock.sleep_ms(round(world.character.reshard_ms * (0.5 + chance.random())))
        stream = chance.choice([*world.streams, *(fork for fork in world.forks if fork.begun)])
        newest = stream.oracle.newest
        if newest is None:
            continue
        take_over = chance.choice([Takeover.NEVER, Takeover.ALWAYS])
        shards = chance.choice([shards for shards in SHARDS if shards != newest.shards])
        root, chain = world.root_of(process), stream.chain_of(process)
        try:
            manifest = reshard(root, chain, shards, take_over, Engine(clock))
        except (FencedError, InvalidPipelineError, StoreUnavailableError) as error:
            # Somebody writes, or was quicker; it has that number already; or nobody answers.
            stream.oracle.counts[f"reshards: {type(error).__name__}"] += 1
        else:
            stream.oracle.heard(manifest)
