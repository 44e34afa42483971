"""Our side: a stream as a streaming asset would run it, without Dagster around it."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from time import perf_counter

import pyarrow as pa
from pyspark.sql import SparkSession

from benchmarks.inputs import COLUMNS
from benchmarks.session import read_inbox
from dagster_ckpt import CheckpointStore, Stream, agg
from dagster_ckpt.clock import SystemClock
from dagster_ckpt.protocol.lease import LeaseHolder
from dagster_ckpt.protocol.manifest import Manifest, Owner, Pipeline
from dagster_ckpt.runtime.job import run_stream
from dagster_ckpt.runtime.session import open_session
from dagster_ckpt.runtime.stream_job import JobHooks, JobOptions, StreamJob
from dagster_ckpt.storage.address import StoreAddress
from dagster_ckpt.storage.opening import Opening
from dagster_ckpt.storage.processes import this_process

NAME = "totals"
SHARDS = 8  # what a streaming asset has unless it says otherwise

Seen = Callable[[Manifest], None]


def _ignore(manifest: Manifest) -> None: ...


class Ours:
    """A side whose state is a stream in the store at `folder`. `retained`: how many epochs stay readable."""

    def __init__(self, spark: SparkSession, inbox: Path, folder: Path, retained: int = 20) -> None:
        self.session = open_session(spark)
        stream = Stream(read_inbox(self.session, inbox)).key_by("k")
        self._stream = stream.aggregate(rows=agg.count(), total=agg.sum("v"), most=agg.max("w"))
        self._address = StoreAddress(folder.as_uri())
        self._retained = retained

    def work(self, seen: Seen = _ignore) -> list[float]:
        """Seconds from one commit to the next; the first also has what opening the stream took.

        `seen` is called with each manifest, in that time.
        """
        ends = [perf_counter()]

        def committed(manifest: Manifest) -> None:
            seen(manifest)
            ends.append(perf_counter())

        job = StreamJob(NAME, self._stream, self._address, NAME, self._opening, JobOptions())
        run_stream(job, JobHooks(on_commit=lambda epoch: committed(epoch.manifest)), SystemClock())
        return [after - before for before, after in pairwise(ends)]

    def results(self) -> pa.Table:
        """As anybody reads them, through the store."""
        self.work()
        return CheckpointStore(self._address.url).stream(NAME).read().select(COLUMNS)

    def _opening(self, pipeline: Pipeline) -> Opening:
        return Opening(
            stream=NAME,
            owner=Owner("benchmark", NAME),
            pipeline=pipeline,
            shards=SHARDS,
            holder=LeaseHolder("benchmark", "benchmark", this_process()),
            root_run="benchmark",
            retained=self._retained,
        )
