"""The end of a world: whether the stream is whole, and whether nothing was left behind."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from dagster_ckpt.errors import IncompatibleStateError
from dagster_ckpt.ids import EMPTY, Term, Version
from dagster_ckpt.protocol.object_names import (
    lease_name,
    manifest_name,
    parse_file_name,
    parse_lease_name,
    parse_manifest_name,
)
from dagster_ckpt.storage.writer.opening import Takeover
from dagster_ckpt.storage.writer.stream_writer import open_stream
from tests.simulation import decoded
from tests.simulation.collecting import collect
from tests.simulation.dagster import opening_for
from tests.simulation.deliveries.delivery_driver import DeliveryDriver
from tests.simulation.driver import Driver
from tests.simulation.oracle import BrokenPromiseError
from tests.simulation.reading import ReadingOracle

if TYPE_CHECKING:
    from tests.simulation.scheduler import Process
    from tests.simulation.stream import SimulatedStream


HEAD_START_MS = 5_000
"""So much later than its upstream a stream comes to its end."""


class Calm:
    """A last writer takes over and commits one epoch; after the grace period a stranger and it collect, then look.

    After its `forks`, which let go of what they no longer need.
    """

    def __init__(self, stream: "SimulatedStream", forks: "Sequence[Calm]" = ()) -> None:
        self.is_over = False
        self._forks = forks
        self._stream = stream
        self._process = stream.world.process("driver")
        opening = replace(opening_for(stream, self._process, "last", "last"), take_over=Takeover.ALWAYS)
        self._driver = stream.driver(self._process, opening)
        self._term = Term(0)
        self._process.spawn("driver", self._work)

    def _work(self) -> None:
        driver, stream = self._driver, self._stream
        world, upstream = stream.world, stream.upstream
        while upstream is not None:
            world.scheduler.this().sleep(HEAD_START_MS)
            upstream = upstream.upstream
        self._term = self._deliver(driver) if isinstance(driver, DeliveryDriver) else self._write(driver)
        world.scheduler.this().sleep(2 * world.character.grace_ms + 2 * max(world.character.faults.pauses_ms))
        # Only now: a writer that slept until now may have subscribed for a delivery that was begun again meanwhile.
        for delivery in (each.delivery for each in world.deliveries if each.upstream is stream):
            if delivery is not None:
                delivery.unsubscribe()
        found = stream.chain_of(self._process).newest()
        if found != stream.oracle.newest:
            wrong = f"{found and found.version} of {len(stream.oracle.history)}"
            raise BrokenPromiseError("the newest is found", wrong)
        while not all(fork.is_over for fork in self._forks):
            world.scheduler.this().sleep(HEAD_START_MS)
        if self._forks and stream.oracle.newest is not None:  # their collectors may have emptied this stream
            world.scheduler.this().sleep(2 * world.character.grace_ms + 2 * max(world.character.faults.pauses_ms))
            self._term = stream.oracle.newest.term
        stranger = world.process("janitor")
        stranger.spawn("collector", lambda: self._collect_as_a_stranger(stranger))

    def _write(self, driver: Driver) -> Term:
        try:
            driver.begin(open_stream(driver.store, driver.opening, driver.clock))
        except IncompatibleStateError:  # what it has read has no continuation: a user rolls it back to epoch 0
            driver.writer.heartbeat.stop()
            driver.opening = replace(driver.opening, root_run="last-rollback", from_epoch=EMPTY)
            driver.begin(open_stream(driver.store, driver.opening, driver.clock))
        driver.finish()
        driver.writer.heartbeat.stop()
        return driver.writer.term

    def _deliver(self, driver: DeliveryDriver) -> Term:
        try:
            return driver.deliver_all()
        except IncompatibleStateError as error:
            driver.delivery.may_stop(error)
            driver.delivery.begin_again()
            return driver.deliver_all()

    def _collect_as_a_stranger(self, process: "Process") -> None:
        collect(self._stream, process, None)
        self._process.spawn("collector", self._collect_and_look)

    def _collect_and_look(self) -> None:
        stream, term = self._stream, self._term
        collect(stream, self._process, term)
        _manifests_are_those_that_must_be(stream)
        _files_are_those_that_are_named(stream)
        _advice_is_that_of_the_newest_term(stream, term)
        if stream.world.restores and isinstance(stream.oracle, ReadingOracle) and stream.delivery is None:
            stream.oracle.has_its_upstreams_table()
        self.is_over = True


def _manifests_are_those_that_must_be(stream: "SimulatedStream") -> None:
    first, last = stream.oracle.log_bound(), len(stream.oracle.history)
    newest = stream.oracle.newest
    if newest is not None and newest.harvested_us != newest.watermark_us and stream.upstream is None:
        raise BrokenPromiseError("what is due comes in the end", f"{newest.harvested_us} of {newest.watermark_us}")
    there = sorted(version for name in stream.truth.objects if (version := parse_manifest_name(name)) is not None)
    if there != list(range(first, last + 1)):
        raise BrokenPromiseError("old manifests go in the end", f"{there} are there, {first} to {last} must be")
    for version in there:
        name = manifest_name(version)
        if decoded.manifest(stream.truth.objects[name], name) != stream.oracle.history[version]:
            raise BrokenPromiseError("what a writer was told of stays in history", f"{version} is another's")


def _files_are_those_that_are_named(stream: "SimulatedStream") -> None:
    truth, oracle = stream.truth, stream.oracle
    first = oracle.bound()
    counted = [manifest for version, manifest in oracle.history.items() if version >= first]
    named = {file for manifest in counted for file in oracle.files_of(manifest)}
    logged = (oracle.history[Version(version)] for version in range(oracle.log_bound(), first))
    named |= {change.name for manifest in logged for change in manifest.changes}
    needed = named | {file for manifest in oracle.pinned.values() for file in oracle.files_of(manifest)}
    needed |= oracle.needed_by_forks()
    allowed = needed.union(
        *(oracle.files_of(decoded.a_pin(truth.objects[name], name).manifest) for name in truth.names("pins"))
    )
    there = {name for name in truth.objects if parse_file_name(name) is not None}
    if missing := sorted(name for name in needed if not oracle.is_there(name)):
        raise BrokenPromiseError("nothing that is needed is deleted", f"{missing} are missing in the end")
    if orphans := sorted(there - allowed):
        raise BrokenPromiseError("every orphan goes in the end", f"{orphans} are left")


def _advice_is_that_of_the_newest_term(stream: "SimulatedStream", term: Term) -> None:
    left = {name for name in stream.truth.objects if parse_lease_name(name) is not None or "probe" in name}
    if left - {lease_name(term)}:
        raise BrokenPromiseError("every orphan goes in the end", f"{sorted(left)} are left")
