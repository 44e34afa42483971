"""Streams as DataFrames: through Spark, `spark.read.format("dagster_ckpt")`, or `SparkReader`, with typed errors."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime

from pyspark.sql import DataFrame, SparkSession

from dagster_ckpt.history import CheckpointStore
from dagster_ckpt.protocol.epochs.upstream import FORMAT
from dagster_ckpt.runtime.spark.batch_source import (
    AS_OF,
    CHANGES_AFTER,
    CHANGES_UNTIL,
    COLUMNS,
    EPOCH,
    NONCE,
    STORE,
    STREAM,
    VERSION,
    batch_source,
    choose,
)
from dagster_ckpt.runtime.spark.package_archive import ship_package
from dagster_ckpt.runtime.spark.session import as_active, is_local, session_id, use_own_python
from dagster_ckpt.storage.stores.address import check_reach

_registered: dict[str, dict[str, object]] = {}
"""The storage options of each session: registering a source a second time makes Spark warn."""


def register_spark_reader(spark: SparkSession, storage_options: Mapping[str, object] | None = None) -> None:
    """Register the format `dagster_ckpt`, with which a Spark session reads streams.

        register_spark_reader(spark)
        spark.read.format("dagster_ckpt").option("store", url).option("stream", "delay_by_carrier").load()

    Further options: `epoch` or `asOf` (the current epoch without them); `changesAfter` and `changesUntil`, for the
    change log of these epochs as `StreamHistory.changes` has it; `columns`, as `["a", "b"]`; `numPartitions`. What is
    read is chosen once, by `load()`.

    `storage_options` are those of the store. They may hold secrets, so they are not options of the reader, which
    Spark shows. Spark wraps an error about an option in its own; `SparkReader` raises ours.
    """
    options = dict(storage_options or {})
    session = session_id(spark)
    if _registered.get(session) != options:
        use_own_python(spark)
        if not is_local(spark):
            ship_package(spark.sparkContext)
        with as_active(spark):
            spark.dataSource.register(batch_source(options))
        _registered[session] = options


class SparkReader:
    """Reads the streams of one store as DataFrames of a session. Each call reads the store before Spark does.

        SparkReader(spark, "s3://bucket/checkpoints").read("delay_by_carrier", epoch=41, columns=["carrier"])

    Raises what `StreamHistory` does: `InvalidPipelineError` for an unknown stream, epoch or column, `CorruptStateError`
    where a manifest is damaged.
    """

    def __init__(self, spark: SparkSession, url: str, storage_options: Mapping[str, object] | None = None) -> None:
        """`storage_options` may hold secrets: Spark never shows them. Lets the session read streams by `format` too."""
        check_reach(url, storage_options or {}, str(spark.sparkContext.master))
        self._spark = spark
        self._store = CheckpointStore(url, storage_options)
        self._url = url
        self._storage_options = dict(storage_options or {})
        register_spark_reader(spark, storage_options)

    def __repr__(self) -> str:
        return f"SparkReader({self._url!r})"

    def read(
        self,
        stream: str,
        epoch: int | None = None,
        columns: Sequence[str] | None = None,
        as_of: datetime | str | None = None,
    ) -> DataFrame:
        """The stream's table at an epoch, or as of a time, or now. Reads only `columns`."""
        time = as_of.isoformat() if isinstance(as_of, datetime) else as_of
        return self._load({STREAM: stream, EPOCH: epoch, AS_OF: time}, columns)

    def changes(
        self, stream: str, after: int, until: int | None = None, columns: Sequence[str] | None = None
    ) -> DataFrame:
        """The change log of the epochs `(after, until]`, with `_epoch` and `_change_type`; in no particular order."""
        # Fixed as a number: Spark reads the store again, and the stream goes on meanwhile.
        until = self._store.stream(stream).latest().epoch if until is None else until
        return self._load({STREAM: stream, CHANGES_AFTER: after, CHANGES_UNTIL: until}, columns)

    def _load(self, options: Mapping[str, object], columns: Sequence[str] | None) -> DataFrame:
        given = {STORE: self._url, **{name: str(value) for name, value in options.items() if value is not None}}
        if columns is not None:
            given[COLUMNS] = json.dumps(list(columns))
        found = choose(given, self._storage_options)
        if not found.changes:
            [shown] = found.manifests
            # Spark reads the store again: for the same manifest, even if its epoch was retired a moment before.
            given |= {EPOCH: str(shown.epoch), VERSION: str(shown.version)}
            given |= {} if shown.epoch_nonce is None else {NONCE: shown.epoch_nonce}
            given.pop(AS_OF, None)
        return self._spark.read.format(FORMAT).options(**given).load()
