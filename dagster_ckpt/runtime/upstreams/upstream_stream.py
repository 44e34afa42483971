"""An upstream as a downstream's function receives it: a `Stream` of its table, or a DataFrame of its change log."""

import json
from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from dagster_ckpt.clock import Clock
from dagster_ckpt.nullability import all_nullable_within
from dagster_ckpt.protocol.change_columns import CHANGE_FIELDS, CHANGE_TYPE
from dagster_ckpt.protocol.epochs.upstream import FORMAT
from dagster_ckpt.protocol.manifest.manifest import Manifest
from dagster_ckpt.protocol.manifest.row_key import row_key
from dagster_ckpt.protocol.object_names import folder_of, name_of
from dagster_ckpt.runtime.declared.step_parts import Upstream
from dagster_ckpt.runtime.declared.stream import Stream
from dagster_ckpt.runtime.spark.arrow_schemas import to_spark_schema
from dagster_ckpt.runtime.spark.session import as_active
from dagster_ckpt.runtime.upstreams.downstream import Downstream, Read, check_spark, table_key
from dagster_ckpt.storage.chain.manifest_chain import ManifestChain
from dagster_ckpt.storage.retention_refs.upstream_log import UpstreamLog
from dagster_ckpt.storage.stores.folder import folder_store


def newest_manifest(downstream: Downstream, parts: Sequence[str], clock: Clock, wait_ms: int = 0) -> Manifest:
    """The newest manifest of the stream whose asset key has these parts.

    Waits for a stream that was never opened: see `UpstreamLog.await_open`.
    """
    store = folder_store(downstream.address.open(), folder_of(parts))
    return UpstreamLog(ManifestChain(store, clock), name_of(parts)).await_open(wait_ms)


def read_table(session: SparkSession, downstream: Downstream, newest: Manifest) -> Stream:
    """The table: its new rows, or, if it updates and deletes rows, its changes, at most one per key and batch."""
    pipeline = newest.pipeline
    if pipeline.appends:
        return Stream(_read(session, downstream, newest, Read.TABLE, pipeline.output), upstream=Upstream(newest.stream))
    schema = pipeline.output.append(pa.field(CHANGE_TYPE, pa.string(), nullable=False))
    frame = _read(session, downstream, newest, Read.TABLE, schema)
    return Stream(frame, upstream=Upstream(newest.stream, row_key(pipeline), changes=True))


def read_changes(session: SparkSession, downstream: Downstream, newest: Manifest) -> DataFrame:
    """The change log of each epoch, unmerged: the table's columns, `_epoch` and `_change_type`."""
    return _read(session, downstream, newest, Read.CHANGES, pa.schema([*newest.pipeline.output, *CHANGE_FIELDS]))


def _read(session: SparkSession, downstream: Downstream, newest: Manifest, what: Read, schema: pa.Schema) -> DataFrame:
    with as_active(session):
        _register(session, downstream)
        # An upstream of an earlier release may declare a type not null that this release opens as nullable.
        reader = session.readStream.format(FORMAT).schema(to_spark_schema(all_nullable_within(schema)))
        key = json.dumps(table_key(newest.pipeline))
        limits = {"epochsMax": downstream.epochs_max, "rowsAPart": downstream.rows_a_part}
        return reader.options(path=newest.stream, read=what, key=key, **limits).load()


def _register(session: SparkSession, downstream: Downstream) -> None:
    """Register the source with Spark, once for each session: a session belongs to one stream."""
    check_spark(session.version)
    manager = session._jsparkSession.sessionState().dataSourceManager()  # noqa: SLF001  (a second time Spark warns)
    if not manager.dataSourceExists(FORMAT):
        # Imported late: it needs what Spark 4.1 does not have, where all but streams that read streams works.
        from dagster_ckpt.runtime.upstreams.upstream_source import data_source

        session.dataSource.register(data_source(downstream))
