"""One stream of a world: its folder in the store, who judges it, and how Dagster knows it."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.integration.recovery.dagster_runs import StreamAsset
from dagster_ckpt.integration.recovery.relaunch import Watched
from dagster_ckpt.protocol.manifest.manifest import Pipeline
from dagster_ckpt.protocol.object_names import folder_of, parts_of_name
from dagster_ckpt.storage.chain.manifest_chain import ManifestChain
from dagster_ckpt.storage.operations.collector import Collector
from dagster_ckpt.storage.stores.folder import folder_store
from dagster_ckpt.storage.stores.object_store import ObjectStore
from dagster_ckpt.storage.writer.opening import Opening, Takeover
from tests.simulation.dagster import watched_stream
from tests.simulation.deliveries.delivering import Delivering
from tests.simulation.deliveries.delivery_driver import DeliveryDriver
from tests.simulation.deliveries.delivery_oracle import DeliveryOracle, DeliveryReading
from tests.simulation.driver import Driver
from tests.simulation.graph import Shape, with_last_step
from tests.simulation.job import KEYED
from tests.simulation.oracle import Oracle
from tests.simulation.reading import Reading, ReadingOracle
from tests.simulation.restoring import Backup
from tests.simulation.truth import Deaf, Truth

if TYPE_CHECKING:
    from tests.simulation.scheduler import Process
    from tests.simulation.world import World


@dataclass
class SimulatedStream:
    """What all who work on it share. They reach its folder by way of their own process.

    `upstream` is the stream that it reads; None: one that reads the job's own batches. With `delivery` it is one of its
    upstream. `pipeline` is what the deployed code makes. While `crash_loop` is "error" or "killed", each of its runs
    ends so.
    """

    world: "World"
    name: str
    upstream: "SimulatedStream | None" = None
    delivery: Delivering | None = None
    folder: str = field(init=False)
    truth: Truth = field(init=False)
    oracle: Oracle = field(init=False)
    watched: Watched = field(init=False)
    reading: Reading | None = None
    begun: bool = False
    begun_beside: bool = False
    crash_loop: str | None = None
    pipeline: Pipeline = field(init=False)

    def __post_init__(self) -> None:
        self.folder = folder_of(parts_of_name(self.name))
        self.pipeline = KEYED if self.upstream is not None else self.world.character.pipeline
        self._make()
        self.watched = watched_stream(self.name, self.world.character.lease_timeout_ms)
        if self.delivery is not None and self.upstream is not None:
            self.delivery.stream = self
            self.upstream.oracle.logged = {}

    def _make(self) -> None:
        """An empty folder, and who judges it."""
        scheduler, character = self.world.scheduler, self.world.character
        self.truth = Truth(lambda: scheduler.now_ms, character.faults.list_late_ms)
        self.oracle = self._kind(self.truth, lambda: scheduler.now_ms, character.kept, character.grace_ms)
        self.oracle.oracles = self.world.oracles
        if isinstance(self.oracle, ReadingOracle) and self.upstream is not None:
            kind = Reading if self.delivery is None else DeliveryReading
            self.reading = kind(self.oracle, self.upstream.oracle, self.world.max_lag)
            self.oracle.upstream, self.oracle.reading = self.upstream.oracle, self.reading
            self.upstream.oracle.readers.append(self.reading)
        if isinstance(self.oracle, DeliveryOracle) and self.delivery is not None:
            self.oracle.delivery = self.delivery
        self.truth.witness = self.oracle

    @property
    def _kind(self) -> type[Oracle]:
        if self.upstream is None:
            return Oracle
        return ReadingOracle if self.delivery is None else DeliveryOracle

    def begin_again(self) -> None:
        """A person has removed its folder: who opens it next makes another stream.

        What is still under way to the folder reaches nothing.
        """
        before, was = self.oracle, self.reading
        self.truth.witness = Deaf()
        if self.upstream is not None and was is not None:
            self.upstream.oracle.readers.remove(was)
        self._make()
        self.oracle.counts, self.oracle.readers = before.counts, before.readers
        self.oracle.logged = None if before.logged is None else {}
        for reader in self.oracle.readers:
            reader.upstream_recreated(self.oracle)
            if isinstance(reader.own, ReadingOracle):
                reader.own.upstream = self.oracle
        self.world.weather.truths[self.folder] = self.truth
        self.world.dagster.reset_the_cursor()

    def restore(self, backup: Backup) -> None:
        """A person has stopped everything and put a backup in the place of its folder.

        What was still under way to the folder reaches nothing.
        """
        before, was = self.oracle, self.reading
        self.truth.witness = Deaf()
        if self.upstream is not None and was is not None:
            self.upstream.oracle.readers.remove(was)
        self._make()
        self.truth.fill(backup.objects)
        self.oracle.goes_back_to(backup.known, before)
        if self.reading is not None:
            self.reading.upstream_restored(self.reading.upstream)
        for reader in self.oracle.readers:
            reader.upstream_restored(self.oracle)
            if isinstance(reader.own, ReadingOracle):
                reader.own.upstream = self.oracle
        self.world.weather.truths[self.folder] = self.truth

    def change_steps(self) -> None:
        """A person deploys other code, and starts it: runs that begin now have other steps behind the first."""
        chance, dagster = self.world.chance, self.world.dagster
        shape: Shape = chance.choice(["chain", "diamond"])
        self.pipeline = with_last_step(shape, chance.choice([1, 2, 3]))
        self.oracle.counts["deployments of other steps"] += 1
        if not dagster.is_crowded(self):
            dagster.launch(self, take_over=chance.choice([Takeover.NEVER, Takeover.ALWAYS, Takeover.ALWAYS]))

    @property
    def asset(self) -> StreamAsset:
        return self.watched.asset

    def store_of(self, process: "Process") -> ObjectStore:
        """Its folder, as that process sees it."""
        return folder_store(self.world.root_of(process), self.folder)

    def chain_of(self, process: "Process") -> ManifestChain:
        world = self.world
        return world.parts.chain(self.store_of(process), world.clock_of(process), world.character.patience)

    def collector_of(self, process: "Process") -> Collector:
        world = self.world
        chain, root = self.chain_of(process), world.root_of(process)
        return world.parts.collector(chain, root, world.character.grace_ms, world.max_lag)

    def waits_for(self, error: InvalidPipelineError) -> bool:
        """Whether an error is that there is nothing to read yet, or that it is wrong to go back in that."""
        if self.delivery is not None:
            return "was never materialized" in str(error)
        return self.upstream is not None

    def driver(self, process: "Process", opening: Opening) -> Driver | DeliveryDriver:
        """Whoever writes it, in that process."""
        parts = self.world.parts
        if self.delivery is not None:
            return DeliveryDriver(self, process, opening)
        return (parts.driver if self.upstream is None else parts.reading_driver)(self, process, opening)
