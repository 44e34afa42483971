"""A stream under test: run it any number of times on one store, read it, inspect what it left."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from dagster_ckpt.clock import Clock, SystemClock
from dagster_ckpt.history import CheckpointStore, StreamHistory
from dagster_ckpt.ids import Epoch
from dagster_ckpt.protocol.lease import LeaseHolder
from dagster_ckpt.protocol.manifest.manifest import Owner, Pipeline
from dagster_ckpt.protocol.object_names import folder_of
from dagster_ckpt.runtime.declared.stream import Stream
from dagster_ckpt.runtime.driver.rebuild import RebuildHooks, rebuild
from dagster_ckpt.runtime.driver.stream_job import JobHooks, JobOptions, JobResult, StreamJob
from dagster_ckpt.runtime.driver.stream_run import run_stream
from dagster_ckpt.runtime.micro_batch.epoch_driver import CommittedEpoch
from dagster_ckpt.runtime.run_mode import Mode
from dagster_ckpt.runtime.spark.session import open_session
from dagster_ckpt.storage.leases.process_identity import this_process
from dagster_ckpt.storage.stores.address import StoreAddress
from dagster_ckpt.storage.writer.opening import Opening

FAST = JobOptions(backoff_ms=10, checkpoint_interval_ms=100)

Function = Callable[[SparkSession], Stream]


@dataclass
class StreamUnderTest:
    """One stream in a new store. `epochs` are those that its hooks got."""

    spark: SparkSession
    root: Path
    name: str = "flights/delays"
    shards: int = 4
    clock: Clock = field(default_factory=SystemClock)
    epochs: list[CommittedEpoch] = field(default_factory=list)
    elsewhere: StoreAddress | None = None
    run_id: str = "run"
    moved: Mapping[str, str] = field(default_factory=dict)
    renamed: Mapping[str, str] = field(default_factory=dict)
    root_run: str = "run"

    @property
    def address(self) -> StoreAddress:
        return self.elsewhere or StoreAddress((self.root / "store").as_uri())

    @property
    def folder(self) -> Path:
        return self.root / "store" / folder_of(self.name.split("/"))

    def run(
        self,
        function: Function,
        options: JobOptions = FAST,
        hooks: JobHooks | None = None,
        from_epoch: int | None = None,
        *,
        restart_steps: bool = False,
    ) -> JobResult:
        job = self._job(
            function,
            options,
            lambda pipeline: replace(self._opening(pipeline, from_epoch), restart_steps=restart_steps),
        )
        return run_stream(job, hooks or JobHooks(on_commit=self.epochs.append), self.clock)

    def rebuild(
        self,
        function: Function,
        hooks: RebuildHooks | None = None,
        mode: Mode = Mode.AVAILABLE_NOW,
        pace: float = 1.0,
    ) -> bool:
        """Build the stream a second time alongside, and switch over to it."""

        def again(_: str) -> Stream:
            return function(open_session(self.spark))

        job = self._job(function, replace(FAST, mode=mode), lambda pipeline: self._opening(pipeline, None))
        return rebuild(job, again, "rebuild", pace, hooks or RebuildHooks(), self.clock)

    def _job(self, function: Function, options: JobOptions, opening: Callable[[Pipeline], Opening]) -> StreamJob:
        return StreamJob(
            asset=self.name,
            stream=function(open_session(self.spark)),
            address=self.address,
            folder=folder_of(self.name.split("/")),
            opening=opening,
            options=options,
            moved=self.moved,
            renamed=self.renamed,
        )

    def history(self) -> StreamHistory:
        return CheckpointStore(self.address.url, self.address.options).stream(self.name)

    def table(self, epoch: int | None = None) -> pa.Table:
        return self.history().read(epoch)

    def rows(self, epoch: int | None = None) -> list[dict[str, object]]:
        """The table's rows in an order of their own, so that they can be compared."""
        return sorted(self.table(epoch).to_pylist(), key=repr)

    def _opening(self, pipeline: Pipeline, from_epoch: int | None) -> Opening:
        return Opening(
            stream=self.name,
            owner=Owner("tests", self.name),
            pipeline=pipeline,
            shards=self.shards,
            holder=LeaseHolder(self.run_id, "tests", this_process()),
            root_run=self.root_run,
            lease_timeout_ms=2_000,
            from_epoch=None if from_epoch is None else Epoch(from_epoch),
        )
