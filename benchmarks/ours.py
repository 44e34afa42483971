"""Our side: a stream as a streaming asset would run it, without Dagster around it."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from time import perf_counter

import pyarrow as pa
from pyspark.sql import SparkSession

from benchmarks.session import read_inbox
from dagster_ckpt import CheckpointStore, InvalidPipelineError, Stream, agg
from dagster_ckpt.clock import SystemClock
from dagster_ckpt.protocol.lease import LeaseHolder
from dagster_ckpt.protocol.manifest.manifest import Manifest, Owner, Pipeline
from dagster_ckpt.runtime.driver.stream_job import JobHooks, JobOptions, StreamJob
from dagster_ckpt.runtime.driver.stream_run import run_stream
from dagster_ckpt.runtime.spark.session import open_session
from dagster_ckpt.storage.leases.process_identity import this_process
from dagster_ckpt.storage.stores.address import StoreAddress
from dagster_ckpt.storage.writer.opening import Opening

NAME = "totals"
SHARDS = 8  # what a streaming asset has unless it says otherwise

Seen = Callable[[Manifest], None]


def _ignore(manifest: Manifest) -> None: ...


class Ours:
    """A side whose state is stream `name` in the store at `folder`. `retained`: how many epochs stay readable.

    `stream` is made in a session of `open_session`.
    """

    def __init__(self, stream: Stream, folder: Path, retained: int = 20, name: str = NAME) -> None:
        self.session = stream.frame.sparkSession
        self._name = name
        self._stream = stream
        self._address = StoreAddress(folder.as_uri())
        self._retained = retained

    @classmethod
    def totals(cls, spark: SparkSession, inbox: Path, folder: Path, retained: int = 20) -> "Ours":
        """A running count, sum and maximum per key."""
        stream = Stream(read_inbox(open_session(spark), inbox)).key_by("k")
        return cls(stream.aggregate(rows=agg.count(), total=agg.sum("v"), most=agg.max("w")), folder, retained)

    def work(self, seen: Seen = _ignore) -> list[float]:
        """Seconds of each epoch that took rows, from the commit before to its own.

        The first also has what opening the stream took. Epochs without rows, which let out what waits for the watermark
        when no file is left, are not counted, as Spark's are not. `seen` is called with each manifest, in that time.
        """
        ends, rows = [perf_counter()], [self._rows_before()]

        def committed(manifest: Manifest) -> None:
            seen(manifest)
            ends.append(perf_counter())
            rows.append(manifest.statistics.total_rows_in)

        self.run(JobHooks(on_commit=lambda epoch: committed(epoch.manifest)), JobOptions())
        triggers = zip(pairwise(ends), pairwise(rows), strict=True)
        return [after - before for (before, after), (had, has) in triggers if has > had]

    def run(self, hooks: JobHooks, options: JobOptions) -> None:
        """One run of the stream, as a Dagster run has it."""
        run_stream(
            StreamJob(self._name, self._stream, self._address, self._name, self._opening, options), hooks, SystemClock()
        )

    def results(self) -> pa.Table:
        """The table as anybody reads it, through the store."""
        self.work()
        return CheckpointStore(self._address.url).stream(self._name).read()

    @property
    def state_bytes(self) -> int:
        """What the newest epoch's state takes in the store."""
        return CheckpointStore(self._address.url).stream(self._name).manifest().statistics.state_bytes

    def _rows_before(self) -> int:
        try:
            return CheckpointStore(self._address.url).stream(self._name).manifest().statistics.total_rows_in
        except InvalidPipelineError:
            return 0  # nobody has opened it yet

    def _opening(self, pipeline: Pipeline) -> Opening:
        return Opening(
            stream=self._name,
            owner=Owner("benchmark", self._name),
            pipeline=pipeline,
            shards=SHARDS,
            holder=LeaseHolder("benchmark", "benchmark", this_process()),
            root_run="benchmark",
            retained=self._retained,
        )
