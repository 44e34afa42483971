"""Run a streaming asset over given batches, in a user's test."""

import inspect
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from dagster_ckpt.clock import SystemClock
from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.history import CheckpointStore
from dagster_ckpt.protocol.lease import LeaseHolder
from dagster_ckpt.protocol.manifest.manifest import Owner
from dagster_ckpt.runtime.declared.primary_key import with_primary_key
from dagster_ckpt.runtime.declared.sources import Reader
from dagster_ckpt.runtime.declared.stream import Stream
from dagster_ckpt.runtime.driver.stream_job import JobHooks, JobOptions, StreamJob
from dagster_ckpt.runtime.driver.stream_run import run_stream
from dagster_ckpt.runtime.plans.direct_call import call_directly, local_session, stream_of_rows
from dagster_ckpt.runtime.spark.arrow_schemas import to_spark_schema
from dagster_ckpt.runtime.spark.no_max_file_age_session import NoMaxFileAgeSession
from dagster_ckpt.runtime.spark.session import open_session
from dagster_ckpt.storage.leases.process_identity import this_process
from dagster_ckpt.storage.stores.address import StoreAddress
from dagster_ckpt.storage.writer.opening import Opening

Batches = Mapping[str, Sequence[pa.Table]]

_NAME = "stream"
_START_S = 1_000_000_000


def run_batches(
    asset: object,
    batches: Batches,
    *,
    arguments: Mapping[str, object] | None = None,
    keys: Mapping[str, Sequence[str]] | None = None,
    spark: SparkSession | None = None,
    shards: int = 2,
) -> pa.Table:
    """The table of a streaming asset after it has processed these micro-batches, on a temporary store.

        table = run_batches(delay_by_carrier, {"departures": [pa.table({"carrier": ["UA"], "dep_delay": [2.0]})]})

    `asset` is made by `@streaming_asset`, or a function that returns a `Stream`, a DataFrame or a query. `batches` has
    the tables of the micro-batches of each source that the asset reads with `source(name, reader)`, and of each
    parameter that is an upstream stream: the first table of every source makes the first epoch, and so on. `arguments`
    are the parameters other than the session, by name. `spark` is the session to use; by default the active one, else a
    new local one. The result's rows have no order.

    The rows of an upstream are only added, unless its tables have the column `_change_type`: then they are changes, at
    most one of each key in a table (an update is two rows, before and after), and `keys` names its key columns: none
    (an empty list) for the table of an aggregate without `key_by`.

    Raises `InvalidPipelineError` for a source without batches, batches without a source, and whatever the run raises.
    """
    with tempfile.TemporaryDirectory(prefix="dagster-ckpt-test-") as folder:
        root = Path(folder)
        session = _BatchSession.beside(open_session(spark or local_session()), _write_batches(root, batches))
        function, primary_key = _asset_function(asset)
        stream = call_directly(function.__name__, function, session, arguments or {}, _Tables(session, keys or {}))
        stream = with_primary_key(stream, primary_key)
        if session.unread:
            raise InvalidPipelineError(
                "batches were given for names that are neither a source nor an upstream of the asset. "
                f"names={sorted(session.unread)}"
            )
        address = StoreAddress((root / "store").as_uri())
        job = StreamJob(
            asset=function.__name__,
            stream=stream,
            address=address,
            folder=_NAME,
            opening=lambda pipeline: Opening(
                stream=_NAME,
                owner=Owner("run_batches", _NAME),
                pipeline=pipeline,
                shards=shards,
                holder=LeaseHolder("run_batches", "run_batches", this_process()),
                root_run="run_batches",
            ),
            options=JobOptions(tolerable_failures=0),
        )
        run_stream(job, JobHooks(), SystemClock())
        return CheckpointStore(address.url).stream(_NAME).read()


class _BatchSession(NoMaxFileAgeSession):
    """A stream's session in which each declared source is a folder of files, one for each micro-batch."""

    @classmethod
    def beside(cls, session: SparkSession, folders: Mapping[str, Path]) -> "_BatchSession":
        made = cls(session.sparkContext, session._jsparkSession)  # noqa: SLF001  (the same session, read in another way)
        made.folders = folders
        made.unread = set(folders)
        return made

    folders: Mapping[str, Path]
    unread: set[str]

    def read_declared(self, name: str, reader: Reader) -> DataFrame:
        return self.read_batches(name)

    def read_batches(self, name: str) -> DataFrame:
        """The batches of that source or upstream."""
        folder = self.folders.get(name)
        if folder is None:
            raise InvalidPipelineError(
                f"the asset reads a source without batches: add them. source={name}, given={list(self.folders)}"
            )
        self.unread.discard(name)
        schema = to_spark_schema(pq.read_schema(min(folder.iterdir())))
        return self.readStream.schema(schema).option("maxFilesPerTrigger", "1").parquet(str(folder))


def _write_batches(root: Path, batches: Batches) -> dict[str, Path]:
    """Each source's tables as Parquet files in a separate folder, in order."""
    folders = {}
    for index, (name, tables) in enumerate(batches.items()):
        if not tables:
            raise InvalidPipelineError(f"give at least one table, which may be empty: it has the schema. source={name}")
        folders[name] = folder = root / f"source-{index}"
        folder.mkdir()
        for number, table in enumerate(tables):
            file = folder / f"{number:05d}.parquet"
            # To Spark NaN is above every number. Statistics have none, so by them Spark skips rows that a filter keeps.
            pq.write_table(table, file, write_statistics=False)
            # Spark takes files in the order of their times.
            os.utime(file, (_START_S + number, _START_S + number))
    return folders


@dataclass(frozen=True)
class _Tables:
    """The batches of each upstream, by the name of its parameter."""

    session: _BatchSession
    keys: Mapping[str, Sequence[str]]

    def frame(self, name: str) -> DataFrame:
        return self.session.read_batches(name)

    def stream(self, name: str) -> Stream:
        return stream_of_rows(name, self.frame(name), self.keys.get(name))


def _asset_function(asset: object) -> tuple[Callable[..., object], tuple[str, ...]]:
    """The streaming function, and the primary key of its asset."""
    if inspect.isfunction(asset):
        return asset, ()
    from dagster_ckpt.integration.declared.streaming_function import of_asset

    streaming = of_asset(asset)
    if streaming is None:
        raise InvalidPipelineError(f"give a streaming asset, or a function that returns a Stream. got={asset!r}")
    return streaming.function, streaming.options.primary_key
