"""Where a test's streams live: an inbox of files, a store, and a Dagster instance that runs them in this process."""

import threading
import time
from collections.abc import Callable
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
from dagster_pyspark import LazyPySparkResource
from pyspark.sql import DataFrame, SparkSession

from dagster_ckpt import (
    CheckpointCoordinatorResource,
    CheckpointStore,
    Recovery,
    Stream,
    StreamHistory,
    agg,
    build_streaming_definitions,
    streaming_asset,
)
from dagster_ckpt.integration.events.event_totals import Totals
from dagster_ckpt.protocol.manifest.manifest import Manifest
from tests.spark.input_files import drop

LABELS = {
    "epoch",
    "rows_in",
    "rows_out",
    "epochs",
    "rows_in_total",
    "rows_out_total",
    "late_rows_total",
    "epochs_total",
    "rows_per_second",
    "epoch_milliseconds",
    "commit_milliseconds",
    "state_rows",
    "state_bytes",
    "runs",
    "merged_rows",
    "stall_milliseconds",
    "read_by",
    "keys_touched",
    "late_rows",
    "lag_seconds",
    "lag/files",
    "lag/bytes",
    "checkpoint_interval_seconds",
    "slowest_shards",
    "dagster/row_count",
    "dagster/column_schema",
    "dagster/uri",
    "recoveries_last_day",
    "epoch_nonce",
    "source_positions",
}


def until(what: str, happened: Callable[[], object], seconds: float = 180) -> None:
    end_s = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < end_s, f"waited in vain: {what}"
        time.sleep(0.05)


@dataclass
class Place:
    folder: Path
    spark: LazyPySparkResource
    instance: dg.DagsterInstance
    options: dict[str, Any] = field(default_factory=dict)
    files: int = 0

    @property
    def url(self) -> str:
        return (self.folder / "store").as_uri()

    @property
    def inbox(self) -> Path:
        return self.folder / "inbox"

    def drop(self, *rows: tuple[str, int]) -> None:
        """One more input file: one more micro-batch."""
        keys, values = zip(*rows, strict=True)
        drop(self.inbox, self.files, pa.table({"k": pa.array(keys, pa.string()), "v": pa.array(values, pa.int64())}))
        self.files += 1

    def read(self, spark: SparkSession) -> DataFrame:
        self.inbox.mkdir(exist_ok=True)
        return spark.readStream.schema("k string, v long").option("maxFilesPerTrigger", 1).parquet(str(self.inbox))

    def counts(self, **options: Any) -> dg.AssetsDefinition:
        """A stream that counts and sums the inbox by key."""

        def counts(spark: SparkSession) -> Stream:
            return Stream(self.read(spark)).key_by("k").aggregate(n=agg.count(), total=agg.sum("v"))

        decorate: Any = streaming_asset
        plain = {"shards": 2, "recovery": Recovery(lease_timeout="2s"), "checkpoint_interval": "200ms"}
        asset: dg.AssetsDefinition = decorate(**{**plain, **options})(counts)
        return asset

    def definitions(self, *assets: Any, streams: list[dg.AssetsDefinition]) -> dg.Definitions:
        checkpoints = CheckpointCoordinatorResource(url=self.url, **{"event_interval": "1s", **self.options})
        own = build_streaming_definitions(streams, checkpoints=checkpoints, spark=self.spark)
        return dg.Definitions.merge(own, dg.Definitions(list(assets)))

    def run(self, *streams: dg.AssetsDefinition, others: tuple[Any, ...] = (), **fields: Any) -> Any:
        """Materialize all of it in one Dagster run, in this process. The result does not raise."""
        definitions = self.definitions(*others, streams=list(streams))
        job = definitions.resolve_implicit_global_asset_job_def()
        return job.execute_in_process(**{"instance": self.instance, "raise_on_error": False, **fields})

    def run_job(self, name: str, *streams: dg.AssetsDefinition) -> Any:
        """Materialize one of the streams, by its job, in a Dagster run of its own. The result does not raise."""
        job = self.definitions(streams=list(streams)).resolve_job_def(name)
        return job.execute_in_process(instance=self.instance, raise_on_error=False)

    def run_beside(self, *streams: dg.AssetsDefinition, **fields: Any) -> "Beside":
        return self.beside(lambda: self.run(*streams, **fields))

    def beside(self, run: Callable[[], Any]) -> "Beside":
        beside = Beside(run)
        beside.thread.start()
        return beside

    def history(self, name: str = "counts") -> StreamHistory:
        return CheckpointStore(self.url).stream(name)

    def epochs(self, name: str = "counts") -> int:
        """How many epochs the stream has ever committed."""
        if name not in CheckpointStore(self.url).streams():
            return 0
        return self.history(name).manifest().statistics.total_epochs

    def table(self, name: str = "counts", epoch: int | None = None) -> dict[str, tuple[int, int]]:
        rows = self.history(name).read(epoch=epoch).to_pylist()
        return {row["k"]: (row["n"], row["total"]) for row in rows}

    def events(self, name: str = "counts") -> list[dg.AssetMaterialization]:
        """What Dagster heard, oldest first."""
        records = self.instance.fetch_materializations(dg.AssetKey(name), limit=1000).records
        return [record.asset_materialization for record in reversed(records) if record.asset_materialization]


def add_up(events: list[dg.AssetMaterialization], manifest: Manifest) -> bool:
    """Whether the events of a stream, which are all there are, add up to its totals at this manifest."""
    labels = ("rows_in", "rows_out", "late_rows", "epochs")
    sums = [sum(int(str(event.metadata[label].value)) for event in events) for label in labels]
    return tuple(sums) == astuple(Totals.of(manifest))


class Beside:
    """A Dagster run in a thread of its own."""

    def __init__(self, run: Callable[[], Any]) -> None:
        self._run = run
        self.result: Any = None
        self.thread = threading.Thread(target=self._go, daemon=True)

    def _go(self) -> None:
        self.result = self._run()

    def end(self) -> Any:
        self.thread.join(180)
        assert not self.thread.is_alive(), "the run goes on"
        return self.result


def failure_of(result: Any) -> str:
    """Why a Dagster run failed: the innermost error, as text."""
    [event] = [event for event in result.all_events if event.event_type_value == "STEP_FAILURE"]
    error = event.step_failure_data.error
    while error.cause is not None:
        error = error.cause
    return str(error.message)
