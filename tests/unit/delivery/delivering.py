"""A stream, a delivery of it, and a SQLite database that it goes to."""

import sqlite3
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from dagster_ckpt.clock import Clock, SystemClock
from dagster_ckpt.delivery.delivery_run import DeliveryJob, run_delivery
from dagster_ckpt.delivery.destination import DeliveryMode, Destination
from dagster_ckpt.history import CheckpointStore
from dagster_ckpt.operators import AppendOnly, Operator
from dagster_ckpt.protocol.lease import LeaseHolder
from dagster_ckpt.protocol.manifest.manifest import Owner, Pipeline
from dagster_ckpt.protocol.object_names import folder_of
from dagster_ckpt.runtime.driver.stream_job import JobHooks, JobOptions, JobResult
from dagster_ckpt.storage.leases.process_identity import this_process
from dagster_ckpt.storage.stores.address import StoreAddress
from dagster_ckpt.storage.writer.opening import Opening, Takeover
from examples.destinations.sqlite_destination import SQLite
from tests.unit.history.made_streams import MadeStream, aggregate

NO_PAUSE = JobOptions(backoff_ms=0, backoff_ms_max=0)


@dataclass
class Delivering:
    """A stream `delays` and its delivery `delays_in_sqlite`."""

    folder: Path
    operator: Operator | AppendOnly = field(default_factory=aggregate)
    mode: DeliveryMode = DeliveryMode.UPSERT
    epochs_max: int = 100
    retained: int = 20
    stream: MadeStream = field(init=False)

    def __post_init__(self) -> None:
        self.stream = MadeStream(self.url, "delays", self.operator, retained=self.retained)

    @property
    def url(self) -> str:
        return (self.folder / "store").as_uri()

    @property
    def database(self) -> Path:
        return self.folder / "shop.db"

    @property
    def destination(self) -> SQLite:
        return SQLite(str(self.database), "delays")

    @property
    def store(self) -> CheckpointStore:
        return CheckpointStore(self.url)

    def deliver(
        self,
        destination: Destination | None = None,
        hooks: JobHooks | None = None,
        options: JobOptions = NO_PAUSE,
        clock: Clock | None = None,
    ) -> JobResult:
        """Deliver what there is, as one Dagster run does."""
        job = DeliveryJob(
            asset="delays_in_sqlite",
            stream="delays",
            destination=destination or self.destination,
            mode=self.mode,
            address=StoreAddress(self.url),
            folder=folder_of(("delays_in_sqlite",)),
            opening=self._opening,
            options=options,
            epochs_max=self.epochs_max,
        )
        return run_delivery(job, hooks or JobHooks(), clock or SystemClock())

    def delivered(self, columns: str = "*") -> list[tuple[object, ...]]:
        """The rows in the database, in order."""
        with closing(sqlite3.connect(self.database)) as connection:
            return sorted(connection.execute(f"SELECT {columns} FROM delays").fetchall(), key=repr)

    def table(self) -> list[tuple[object, ...]]:
        """The rows that readers of the stream see, in order."""
        rows = self.store.stream("delays").read()
        return sorted(zip(*(column.to_pylist() for column in rows.columns), strict=True), key=repr)

    def changes(self) -> list[tuple[object, ...]]:
        """All changes that readers of the stream see, in order."""
        rows = self.store.stream("delays").changes(after=0)
        return sorted(zip(*(column.to_pylist() for column in rows.columns), strict=True), key=repr)

    def _opening(self, pipeline: Pipeline) -> Opening:
        return Opening(
            stream="delays_in_sqlite",
            owner=Owner("instance-1", "delays_in_sqlite"),
            pipeline=pipeline,
            shards=1,
            holder=LeaseHolder("dagster-run-1", "instance-1", this_process()),
            root_run="dagster-run-1",
            take_over=Takeover.ALWAYS,
        )
