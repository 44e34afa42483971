"""`EpochIOManager`: any ordinary asset loads a stream's table, as it is now or as it was."""

from typing import Any

import dagster as dg
import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.history import CheckpointStore
from dagster_ckpt.integration.late_rows import stream_of_late_key
from dagster_ckpt.integration.names import stream_name_of
from dagster_ckpt.integration.resources import CheckpointCoordinatorResource

CHOICES = ("epoch", "as_of")


class EpochIOManager(dg.ConfigurableIOManager):
    """Loads a stream's table as what the input is annotated with: pandas, Arrow, Polars or a Spark DataFrame.

    Without an annotation it is an Arrow table. The input's metadata may choose the past: `epoch`, or `as_of` (a time).
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
        return as_annotated(load_table(context, self.checkpoints.store()), context.dagster_type.typing_type)


@dg.io_manager(
    required_resource_keys={"checkpoints"}, description="Loads the tables of the streams that `checkpoints` keeps."
)
def epochs_of_checkpoints(context: dg.InitResourceContext) -> EpochIOManager:
    """The IO manager over whatever the code location has under `checkpoints`."""
    return EpochIOManager(checkpoints=context.resources.checkpoints)


def load_table(context: dg.InputContext, store: CheckpointStore) -> pa.Table:
    """The table, or the late rows, at the epoch that the input's metadata chooses."""
    metadata = context.definition_metadata or {}
    chosen = {name: _plain(metadata[name]) for name in CHOICES if name in metadata}
    epoch, as_of = chosen.get("epoch"), chosen.get("as_of")
    late = stream_of_late_key(context.asset_key)
    try:
        stream = store.stream(stream_name_of(context.asset_key))
    except InvalidPipelineError:
        if late is None:
            raise
        key, number = late
        return store.stream(stream_name_of(key)).late_rows(number, epoch, as_of)
    return stream.read(epoch=epoch, as_of=as_of)


def as_annotated(table: pa.Table, annotation: Any) -> object:
    """The table as what an input is annotated with. Raises `InvalidPipelineError` for anything it cannot become."""
    if annotation in {Any, None, pa.Table}:
        return table
    if annotation is pd.DataFrame:
        return table.to_pandas()
    if annotation is DataFrame:
        session = SparkSession.getActiveSession() or SparkSession.builder.getOrCreate()
        return session.createDataFrame(table)
    # Compared by name: Polars is the user's choice and need not be installed.
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


def _plain(value: object) -> Any:
    """Metadata as given to an input, or as Dagster wraps it."""
    return value.value if isinstance(value, dg.MetadataValue) else value
