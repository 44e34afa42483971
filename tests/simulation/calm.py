"""The end of a world: whether the stream is whole, and whether nothing was left behind."""

from dataclasses import replace
from typing import TYPE_CHECKING

from dagster_ckpt.ids import Term
from dagster_ckpt.protocol.names import file_of, lease_name, manifest_name, parse_lease_name, parse_manifest_name
from dagster_ckpt.storage.opening import Takeover
from dagster_ckpt.storage.writer import open_stream
from tests.simulation import decoded
from tests.simulation.dagster import opening_for
from tests.simulation.oracle import BrokenPromiseError

if TYPE_CHECKING:
    from tests.simulation.scheduler import Process
    from tests.simulation.world import World


class Calm:
    """A last writer takes over and commits one epoch; after the grace period a stranger and it collect, then look."""

    def __init__(self, world: "World") -> None:
        self.is_over = False
        self._world = world
        self._process = world.process("driver")
        opening = replace(opening_for(world.character, self._process, "last", "last"), take_over=Takeover.ALWAYS)
        self._driver = world.parts.driver(world, self._process, opening)
        self._process.spawn("driver", self._write)

    def _write(self) -> None:
        driver, world = self._driver, self._world
        driver.begin(open_stream(driver.store, driver.opening, driver.clock))
        driver.make_epoch()
        driver.writer.heartbeat.stop()
        world.scheduler.this().sleep(2 * world.character.grace_ms + 2 * max(world.character.faults.pauses_ms))
        found = world.chain_of(self._process).newest()
        if found != world.oracle.newest:
            raise BrokenPromiseError("the newest is found", f"{found and found.version} of {len(world.oracle.history)}")
        stranger = world.process("janitor")
        stranger.spawn("collector", lambda: self._collect_as_a_stranger(stranger))

    def _collect_as_a_stranger(self, process: "Process") -> None:
        self._world.collector_of(process).collect()
        self._process.spawn("collector", self._collect_and_look)

    def _collect_and_look(self) -> None:
        world, term = self._world, self._driver.writer.term
        world.collector_of(self._process).collect(writer=term)
        _manifests_are_those_that_must_be(world)
        _files_are_those_that_are_named(world)
        _advice_is_that_of_the_newest_term(world, term)
        self.is_over = True


def _manifests_are_those_that_must_be(world: "World") -> None:
    first, last = world.oracle.bound(), len(world.oracle.history)
    there = sorted(version for name in world.truth.objects if (version := parse_manifest_name(name)) is not None)
    if there != list(range(first, last + 1)):
        raise BrokenPromiseError("old manifests go in the end", f"{there} are there, {first} to {last} must be")
    for version in there:
        name = manifest_name(version)
        if decoded.manifest(world.truth.objects[name], name) != world.oracle.history[version]:
            raise BrokenPromiseError("what a writer was told of stays in history", f"{version} is another's")


def _files_are_those_that_are_named(world: "World") -> None:
    truth, oracle = world.truth, world.oracle
    first = oracle.bound()
    counted = [manifest for version, manifest in oracle.history.items() if version >= first]
    named = {file for manifest in counted for file in oracle.files_of(manifest)}
    needed = named | {file for manifest in oracle.pinned.values() for file in oracle.files_of(manifest)}
    allowed = needed.union(
        *(oracle.files_of(decoded.a_pin(truth.objects[name], name).manifest) for name in truth.names("pins"))
    )
    there = {name for name in truth.objects if file_of(name) is not None}
    if missing := sorted(needed - there):
        raise BrokenPromiseError("nothing that is needed is deleted", f"{missing} are missing in the end")
    if orphans := sorted(there - allowed):
        raise BrokenPromiseError("every orphan goes in the end", f"{orphans} are left")


def _advice_is_that_of_the_newest_term(world: "World", term: Term) -> None:
    left = {name for name in world.truth.objects if parse_lease_name(name) is not None or "probe" in name}
    if left - {lease_name(term)}:
        raise BrokenPromiseError("every orphan goes in the end", f"{sorted(left)} are left")
