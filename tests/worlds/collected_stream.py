"""One stream with all the files that its manifests name, in a store that is collected."""

from dataclasses import dataclass, field
from uuid import uuid4

from dagster_ckpt.ids import Epoch, Term
from dagster_ckpt.protocol.epochs.retention import files_named
from dagster_ckpt.protocol.manifest.manifest import Manifest
from dagster_ckpt.protocol.object_names import folder_of, parse_manifest_name, parts_of_name
from dagster_ckpt.storage.chain.manifest_chain import ManifestChain
from dagster_ckpt.storage.operations.collector import Collected, Collector
from dagster_ckpt.storage.retention_refs.pins import read_pins
from dagster_ckpt.storage.stores.folder import folder_store
from dagster_ckpt.storage.stores.memory import MemoryObjectStore
from dagster_ckpt.storage.stores.object_store import ObjectStore
from dagster_ckpt.storage.stores.retry import Patience
from dagster_ckpt.storage.writer.opening import Takeover
from dagster_ckpt.storage.writer.stream_writer import StreamWriter, open_stream
from tests.worlds.clock import StillClock
from tests.worlds.streams import an_edit, an_opening

NAME = "flights/delay_by_carrier"
FOLDER = folder_of(parts_of_name(NAME))
GRACE_MS = 60_000
EPOCH_MS = 1_000
RETAINED = 5
IMPATIENT = Patience(total_ms=10, pause_ms=50, pause_ms_max=50)


@dataclass
class World:
    """One stream whose every commit takes a second, with all the files that its manifests name."""

    clock: StillClock = field(default_factory=StillClock)
    root: MemoryObjectStore = field(init=False)
    writer: StreamWriter = field(init=False)

    def __post_init__(self) -> None:
        self.root = MemoryObjectStore(uuid4().hex, self.clock)
        self.open()

    @property
    def store(self) -> ObjectStore:
        """The stream's folder."""
        return folder_store(self.root, FOLDER)

    def open(self, from_epoch: Epoch | None = None) -> None:
        run = f"run-{self.clock.unique()}"
        opening = an_opening(run, retained=RETAINED, take_over=Takeover.ALWAYS, from_epoch=from_epoch)
        self.writer = open_stream(self.store, opening, self.clock)
        self.writer.heartbeat.stop()

    def commit(self, epochs: int = 1) -> Manifest:
        for _ in range(epochs):
            edit = an_edit(self.writer.manifest)
            for ack in edit.acks:
                for name in [run.path for table in ack.tables for run in table.runs]:
                    self.store.put_if_absent(name, b"a run")
                for change in ack.changes:
                    self.store.put_if_absent(change.path, b"changes")
            self.writer.commit(edit)
            self.clock.sleep_ms(EPOCH_MS)
        return self.writer.manifest

    def wait(self) -> None:
        """For a grace period, and the second that a store may err by."""
        self.clock.sleep_ms(GRACE_MS + 1_000)

    @property
    def chain(self) -> ManifestChain:
        return ManifestChain(self.store, self.clock, IMPATIENT)

    def collect(self, writer: Term | None = None) -> Collected:
        return Collector(self.chain, self.root, GRACE_MS).collect(writer)

    def collect_mine(self) -> Collected:
        return self.collect(self.writer.term)

    @property
    def names(self) -> set[str]:
        return set(self.store.list(""))

    @property
    def files(self) -> set[str]:
        return {name for name in self.names if name.startswith(("state/", "changes/", "index/"))}

    @property
    def versions(self) -> list[int]:
        return sorted(version for name in self.names if (version := parse_manifest_name(name)) is not None)

    def is_whole(self) -> bool:
        """Whether every epoch that should be readable has all its files."""
        newest = self.chain.newest()
        assert newest is not None
        shown = [newest, *(self.chain.read(entry.version) for entry in newest.retained)]
        shown += [pin.manifest for pin in read_pins(self.chain)]
        return all(files_named(manifest) <= self.files for manifest in shown)
