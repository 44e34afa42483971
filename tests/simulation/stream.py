"""One stream of a world: its folder in the store, who judges it, and how Dagster knows it."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dagster_ckpt.integration.recovery.dagster_runs import StreamAsset
from dagster_ckpt.integration.recovery.relaunch import Watched
from dagster_ckpt.protocol.object_names import folder_of, parts_of_name
from dagster_ckpt.storage.chain.manifest_chain import ManifestChain
from dagster_ckpt.storage.operations.collector import Collector
from dagster_ckpt.storage.stores.folder import folder_store
from dagster_ckpt.storage.stores.object_store import ObjectStore
from dagster_ckpt.storage.writer.opening import Opening
from tests.simulation.dagster import watched_stream
from tests.simulation.driver import Driver
from tests.simulation.oracle import Oracle
from tests.simulation.reading import Reading, ReadingOracle
from tests.simulation.truth import Truth

if TYPE_CHECKING:
    from tests.simulation.scheduler import Process
    from tests.simulation.world import World


@dataclass
class SimulatedStream:
    """What all who work on it share. They reach its folder by way of their own process.

    `upstream` is the stream that it reads; None: one that reads the job's own batches. While `crash_loop` is "error" or
    "killed", each of its runs ends so.
    """

    world: "World"
    name: str
    upstream: "SimulatedStream | None" = None
    folder: str = field(init=False)
    truth: Truth = field(init=False)
    oracle: Oracle = field(init=False)
    watched: Watched = field(init=False)
    reading: Reading | None = None
    begun: bool = False
    crash_loop: str | None = None

    def __post_init__(self) -> None:
        self.folder = folder_of(parts_of_name(self.name))
        scheduler, character = self.world.scheduler, self.world.character
        self.truth = Truth(lambda: scheduler.now_ms, character.faults.list_late_ms)
        kind = Oracle if self.upstream is None else ReadingOracle
        self.oracle = kind(self.truth, lambda: scheduler.now_ms, character.kept, character.grace_ms)
        self.oracle.oracles = self.world.oracles
        if isinstance(self.oracle, ReadingOracle) and self.upstream is not None:
            self.reading = Reading(self.oracle, self.upstream.oracle, self.world.max_lag)
            self.oracle.upstream, self.oracle.reading = self.upstream.oracle, self.reading
            self.upstream.oracle.readers.append(self.reading)
        self.truth.witness = self.oracle
        self.watched = watched_stream(self.name, character.lease_timeout_ms)

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

    def driver(self, process: "Process", opening: Opening) -> Driver:
        """Whoever writes it, in that process."""
        parts = self.world.parts
        return (parts.driver if self.upstream is None else parts.reading_driver)(self, process, opening)
