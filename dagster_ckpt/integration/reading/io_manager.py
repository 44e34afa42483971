"""`EpochIOManager`: any ordinary asset loads a stream's table, as it is now or as it was."""

from dataclasses import dataclass
from typing import Any

import dagster as dg
import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.history import CheckpointStore, StreamHistory
from dagster_ckpt.integration.dagster_names import stream_name_of
from dagster_ckpt.integration.declared.resources import CheckpointCoordinatorResource
from dagster_ckpt.integration.reading.late_rows_asset import stream_of_late_key
from dagster_ckpt.integration.reading.loaded_epochs import aligned_snapshot, is_aligned, plain_value, remember_loaded
from dagster_ckpt.protocol.manifest.manifest import Manifest
from dagster_ckpt.runtime.spark.arrow_schemas import to_spark_schema
from dagster_ckpt.runtime.spark.spark_reader import SparkReader


class EpochIOManager(dg.ConfigurableIOManager):
    """Loads a stream's table as the type of the input's annotation: pandas, Arrow, Polars or a Spark DataFrame.

    Without an annotation it is an Arrow table. The input's metadata may choose the past: `epoch`, or `as_of` (a time).
    All inputs of the asset with `consistency: "aligned"` come from one cut (`CheckpointStore.snapshot`). A Spark
    DataFrame is read by Spark's tasks, not in this process.
    """

    checkpoints: dg.ResourceDependency[CheckpointCoordinatorResource]

    def handle_output(self, context: dg.OutputContext, obj: object) -> None:
        """Refuse: a stream's table is written by its commits alone."""
        raise InvalidPipelineError(
            "a stream's table is written by its commits; this IO manager only reads. Give the asset another "
            f"io_manager_key. asset={context.asset_key.to_user_string()}, value={type(obj).__name__}"
        )

    def load_input(self, context: dg.InputContext) -> object:
        """The upstream stream's table. Raises `InvalidPipelineError` for an unknown stream, epoch or annotation."""
        annotation = context.dagster_type.typing_type
        chosen = choose_input(context, self.checkpoints.store())
        remember_loaded(context, chosen.history.name, chosen.shown.epoch)
        if annotation is DataFrame and chosen.late is None:
            address, epoch = self.checkpoints.address, chosen.shown.epoch
            return SparkReader(_session(), address.url, address.options).read(chosen.history.name, epoch)
        return as_annotated(chosen.table(), annotation)


@dg.io_manager(
    required_resource_keys={"checkpoints"}, description="Loads the tables of the streams that `checkpoints` keeps."
)
def epochs_of_checkpoints(context: dg.InitResourceContext) -> EpochIOManager:
    """The IO manager over the code location's resource `checkpoints`."""
    return EpochIOManager(checkpoints=context.resources.checkpoints)


@dataclass(frozen=True)
class ChosenInput:
    """A stream at one epoch: its table, or the late rows of one of its inputs (from 0)."""

    history: StreamHistory
    shown: Manifest
    late: int | None = None

    def table(self) -> pa.Table:
        if self.late is not None:
            return self.history.late_rows_shown(self.shown, self.late)
        return self.history.read_shown(self.shown)


def choose_input(context: dg.InputContext, store: CheckpointStore) -> ChosenInput:
    """The stream, and the epoch that the input's metadata chooses."""
    metadata = context.definition_metadata or {}
    if is_aligned(metadata):
        name, cut = stream_name_of(context.asset_key), aligned_snapshot(context, store)
        return ChosenInput(store.stream(name), cut.manifest(name))
    history, late = _stream(context.asset_key, store)
    return ChosenInput(history, history.manifest(plain_value(metadata, "epoch"), plain_value(metadata, "as_of")), late)


def _stream(key: dg.AssetKey, store: CheckpointStore) -> tuple[StreamHistory, int | None]:
    """The stream of an asset key, or the stream and input whose late rows it names."""
    try:
        return store.stream(stream_name_of(key)), None
    except InvalidPipelineError:
        late = stream_of_late_key(key)
        if late is None:
            raise
        return store.stream(stream_name_of(late[0])), late[1]


def as_annotated(table: pa.Table, annotation: Any) -> object:
    """The table as the annotated type. Raises `InvalidPipelineError` for an unsupported one."""
    if annotation in {Any, None, pa.Table}:
        return table
    if annotation is pd.DataFrame:
        return table.to_pandas()
    if annotation is DataFrame:
        # With the types: Spark would read a time without a zone as one in the session's zone.
        return _session().createDataFrame(table, to_spark_schema(table.schema))
    # Compared by name: Polars is optional.
    if getattr(annotation, "__module__", "").split(".")[0] == "polars":
        return _as_polars(table, annotation)
    raise InvalidPipelineError(
        "a stream's table can be loaded as pandas.DataFrame, pyarrow.Table, polars.DataFrame, polars.LazyFrame or "
        f"pyspark.sql.DataFrame: annotate the input so. annotation={annotation}"
    )


def _as_polars(table: pa.Table, annotation: Any) -> object:
    import polars as pl

    frame = pl.DataFrame(table)
    return frame.lazy() if annotation is pl.LazyFrame else frame


def _session() -> SparkSession:
    return SparkSession.getActiveSession() or SparkSession.builder.getOrCreate()
