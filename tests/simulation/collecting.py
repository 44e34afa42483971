"""Whoever collects garbage: a writer for its own stream, and others."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from dagster_ckpt.errors import StoreUnavailableError
from dagster_ckpt.ids import Term

if TYPE_CHECKING:
    from tests.simulation.scheduler import Process
    from tests.simulation.stream import SimulatedStream


def collect_again_and_again(stream: "SimulatedStream", process: "Process", writer: Callable[[], int | None]) -> None:
    """One pass after another, in the strand that asks. `writer` tells the term of a writer that collects its own."""
    world = stream.world
    clock = world.clock_of(process)
    while True:
        clock.sleep_ms(round(world.character.collect_every_ms * (0.5 + world.chance.random())))
        try:
            term = writer()
            stream.collector_of(process).collect(None if term is None else Term(term))
        except StoreUnavailableError:
            continue


def collect_for_others(stream: "SimulatedStream", process: "Process") -> None:
    collect_again_and_again(stream, process, lambda: None)
