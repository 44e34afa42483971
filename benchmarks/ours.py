"""Our side: a stream as a streaming asset would run it, without Dagster around it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from time import perf_counter

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from benchmarks.inputs import COLUMNS, KEY
from benchmarks.session import read_inbox
from dagster_ckpt import (
    CheckpointStore,
    InvalidPipelineError,
    KeyedState,
    ProcessContext,
    ProcessFunction,
    Stream,
    ValueState,
    agg,
)
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

    `stream` is made in a session of `open_session`. `tasks` bounds those of an epoch.
    """

    def __init__(
        self,
        stream: Stream,
        folder: Path,
        retained: int = 20,
        name: str = NAME,
        shards: int = SHARDS,
        tasks: int | None = None,
        store_options: Mapping[str, object] | None = None,
    ) -> None:
        self.session = stream.frame.sparkSession
        self._name = name
        self._stream = stream
        self._address = StoreAddress(folder.as_uri(), store_options or {})
        self._retained, self._shards, self._tasks = retained, shards, tasks

    @classmethod
    def totals(
        cls,
        spark: SparkSession,
        inbox: Path,
        folder: Path,
        retained: int = 20,
        shards: int = SHARDS,
        tasks: int | None = None,
        store_options: Mapping[str, object] | None = None,
    ) -> "Ours":
        """A running count, sum and maximum per key."""
        stream = Stream(read_inbox(open_session(spark), inbox)).key_by("k")
        totals = stream.aggregate(rows=agg.count(), total=agg.sum("v"), most=agg.max("w"))
        return cls(totals, folder, retained, shards=shards, tasks=tasks, store_options=store_options)

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

        self.run(JobHooks(on_commit=lambda epoch: committed(epoch.manifest)), JobOptions(tasks_max=self._tasks))
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
            shards=self._shards,
            holder=LeaseHolder("benchmark", "benchmark", this_process()),
            root_run="benchmark",
            retained=self._retained,
        )


class OursByCode(Ours):
    """The same totals by a process function, whose table has a row for each key of each epoch."""

    @classmethod
    def of(cls, spark: SparkSession, inbox: Path, folder: Path) -> "OursByCode":
        stream = Stream(read_inbox(open_session(spark), inbox)).key_by("k")
        return cls(stream.process(_Totals()), folder)

    def results(self) -> pa.Table:
        """The newest row of each key: no value is negative, so that is the greatest of each column."""
        rows = super().results().group_by(KEY)
        return rows.aggregate([(name, "max") for name in COLUMNS[1:]]).rename_columns(COLUMNS)


_TOTALS = pa.schema([("rows", pa.int64()), ("total", pa.float64()), ("most", pa.int64())])


@dataclass(frozen=True)
class _Totals(ProcessFunction):
    output = pa.schema([(KEY, pa.int64()), *_TOTALS])
    state = {"totals": ValueState(_TOTALS)}  # noqa: RUF012  (as every process function declares it)

    def on_rows(self, rows: pa.Table, state: KeyedState, context: ProcessContext) -> pa.Table:
        grouped = rows.group_by(KEY).aggregate([([], "count_all"), ("v", "sum"), ("w", "max")])
        new = grouped.rename_columns(COLUMNS)
        before = state.value("totals").get(new)
        totals = pa.table(
            {
                KEY: new[KEY],
                "rows": pc.add(new["rows"], pc.fill_null(before["rows"], 0)),
                "total": pc.add(new["total"], pc.fill_null(before["total"], 0.0)),
                "most": pc.max_element_wise(new["most"], before["most"]),
            }
        )
        state.value("totals").put(totals)
        return totals
