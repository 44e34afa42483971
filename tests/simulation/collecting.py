"""Whoever collects garbage: a writer for its own stream, and others."""

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from dagster_ckpt.errors import CorruptStateError, InvalidPipelineError, StoreUnavailableError
from dagster_ckpt.ids import Term
from dagster_ckpt.storage.retention_refs.pins import remove_pin

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
            collect(stream, process, None if term is None else Term(term))
        except StoreUnavailableError:
            continue


def collect(stream: "SimulatedStream", process: "Process", writer: Term | None) -> None:
    """One pass. Where a pin that came too late is in its way, somebody takes that away, as the error says."""
    while True:
        try:
            stream.collector_of(process).collect(writer)
            return
        except CorruptStateError as error:
            late = stream.oracle.pin_that_never_held(str(error))
            if late is None:
                raise
            chain = stream.chain_of(process)
            with suppress(InvalidPipelineError):  # another did
                remove_pin(chain, late)
            stream.oracle.counts["late pins taken away"] += 1


def collect_for_others(stream: "SimulatedStream", process: "Process") -> None:
    collect_again_and_again(stream, process, lambda: None)
