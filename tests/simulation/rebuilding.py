"""Whoever rebuilds: a person's run that builds a stream anew beside the live one, and lets it take over."""

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

from dagster_ckpt.errors import (
    CheckpointDeclinedError,
    CheckpointError,
    CheckpointTimeoutError,
    StoreUnavailableError,
)
from dagster_ckpt.history import swap as swaps
from dagster_ckpt.ids import EMPTY, Epoch, Shard, Term
from dagster_ckpt.protocol.manifest.manifest import ChangeRef, Manifest
from dagster_ckpt.protocol.object_names import FileId, changes_name
from dagster_ckpt.runtime.driver.rebuild import names_beside
from dagster_ckpt.storage.chain.manifest_chain import ManifestChain
from dagster_ckpt.storage.operations.fork import fork_empty
from dagster_ckpt.storage.stores.object_store import ObjectStore
from dagster_ckpt.storage.writer.opening import Takeover
from dagster_ckpt.storage.writer.stream_writer import open_stream
from tests.simulation.dagster import opening_for
from tests.simulation.driver import FAILURES_MAX, Driver
from tests.simulation.job import checksum, consumed, encode, sums_after

if TYPE_CHECKING:
    from tests.simulation.scheduler import Process
    from tests.simulation.stream import SimulatedStream

REBUILDS_MAX = 3
BEHIND_MAX = 2
"""So many batches behind, the stream beside asks to take over: it may have caught up by then."""


def besides_of(stream: str) -> list[str]:
    """The names of the streams that are built beside it, one after another."""
    return [f"{stream}/~rebuild-{number}" for number in range(1, REBUILDS_MAX + 1)]


def rebuild_again_and_again(stream: "SimulatedStream", process: "Process") -> None:
    """Rebuild the stream, over and over; each request is repeated until it is done, as a relaunch does."""
    world = stream.world
    clock, chance = world.clock_of(process), Random(f"rebuilder {process.number} of {world.seed}")
    while True:
        clock.sleep_ms(round(world.character.grace_ms * chance.random()))
        try:
            beside = _beside(stream, process)
            if beside is not None:
                _go_on(stream, beside, process, chance)
        except CheckpointError as error:
            # Another goes on with one of the two, it has not read as far, or something did not answer.
            if "taken by another pin" in str(error):
                raise
            stream.oracle.counts[f"rebuilds: {type(error).__name__}"] += 1


def _beside(stream: "SimulatedStream", process: "Process") -> "SimulatedStream | None":
    """The stream to build beside it now, begun where it was not; None where there is nothing to do."""
    world, chain = stream.world, stream.chain_of(process)
    newest = chain.newest()
    if newest is None or newest.epoch == EMPTY:
        return None
    name = next(names_beside(newest))
    beside = next((each for each in world.besides if each.name == name), None)
    if beside is not None and beside.chain_of(process).newest() is None:
        fork_empty(world.root_of(process), chain, newest, name)
    return beside


def _go_on(stream: "SimulatedStream", beside: "SimulatedStream", process: "Process", chance: Random) -> None:
    root, chain = stream.world.root_of(process), stream.chain_of(process)
    stream.world.begin_beside(beside)
    run = f"{beside.name} {process.number} {chance.random()}"
    opening = replace(opening_for(beside, process, run, run), take_over=Takeover.ALWAYS, restart_steps=False)
    driver = beside.driver(process, opening)
    assert isinstance(driver, Driver)
    driver.begin(open_stream(driver.store, driver.opening, driver.clock))
    try:
        _catch_up(driver, chain, more=chance.randrange(1, 2 + BEHIND_MAX))
    finally:
        driver.writer.close("the pass is over")
    politeness = chance.choice([Takeover.NEVER, Takeover.ALWAYS])
    asked = replace(opening_for(stream, process, run, beside.name), take_over=politeness)
    manifest = swaps.swap(root, chain, beside.chain_of(process), asked)
    if manifest.rollbacks[-1:] == (beside.name,) and stream.oracle.newest == manifest:
        stream.oracle.counts["swaps heard of"] += 1


def _catch_up(driver: Driver, chain: ManifestChain, more: int) -> None:
    """Make epochs until nearly all is read that the stream has, and `more` then; one that fails is tried again."""
    failures = 0
    while more:
        target = chain.newest()
        is_near = target is not None and consumed(driver.writer.manifest) + BEHIND_MAX >= consumed(target)
        try:
            driver.make_epoch()
        except (StoreUnavailableError, CheckpointDeclinedError, CheckpointTimeoutError):
            failures += 1
            if failures > FAILURES_MAX:
                raise
            driver.start_again()
        else:
            more -= is_near


def log_of_sums(root: ObjectStore, chain: ManifestChain, newest: Manifest, rebuilt: Manifest) -> tuple[ChangeRef, ...]:
    """The change log of a swap: the sums that differ, in one file."""
    del root
    before, after = sums_after(consumed(newest)), sums_after(consumed(rebuilt))
    changed = {key: total for key, total in after.items() if before.get(key) != total}
    if not changed:
        return ()
    version, data = newest.version + 1, encode(changed)
    attempt = int(chain.clock.unique()[:12], 16)
    name = changes_name(FileId(Term(version), Epoch(version), Shard(0), attempt))
    if not chain.span().put_if_absent(name, data):
        # Its own, from a try whose reply was lost: nobody else has this name.
        assert chain.span().get(name) == data, name
    return (ChangeRef(name, len(changed), len(data), checksum(data), Epoch(version), Shard(0)),)
