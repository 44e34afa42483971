"""The changes of a database table become that table again: its rows are inserted, updated and deleted."""

import tempfile
from pathlib import Path

import dagster as dg
import pyarrow as pa
import pyarrow.parquet as pq
from dagster_pyspark import LazyPySparkResource
from pyspark.sql import SparkSession

from dagster_ckpt import (
    CheckpointCoordinatorResource,
    Stream,
    agg,
    build_streaming_definitions,
    changes_from,
    streaming_asset,
)

FOLDER = Path(tempfile.gettempdir(), "dagster-ckpt-examples", "changes_of_a_database")
CHANGES = FOLDER / "changes"
FILES = [
    [("insert", 1, 10, "Ada"), ("insert", 2, 11, "Bo"), ("insert", 3, 12, "Cyd")],
    [("delete", 2, 15, "Bo"), ("update", 1, 14, "Ada L."), ("update", 1, 13, "Ida")],  # versions may come in any order
]


@dg.asset
def changes() -> None:
    """What a change data capture tool writes."""
    CHANGES.mkdir(parents=True, exist_ok=True)
    for number, rows in enumerate(FILES):
        op, id_, version, name = (pa.array(column) for column in zip(*rows, strict=True))
        file = pa.table({"op": op, "id": id_, "version": version, "name": name})
        pq.write_table(file, CHANGES / f"{number}.parquet")


@streaming_asset(deps=[changes])
def customers(spark: SparkSession) -> Stream:
    """The table as it is in the database."""
    rows = spark.readStream.schema("op string, id long, version long, name string").parquet(str(CHANGES))
    return changes_from(rows, "op-column", key="id", sequence="version")


@streaming_asset
def names(customers: Stream) -> Stream:
    """How many customers have each name, now."""
    return customers.key_by("name").aggregate(customers=agg.count())


defs = dg.Definitions.merge(
    dg.Definitions(assets=[changes]),
    build_streaming_definitions(
        assets=[customers, names],
        checkpoints=CheckpointCoordinatorResource(url=(FOLDER / "checkpoints").as_uri()),
        spark=LazyPySparkResource(spark_config={"spark.master": "local[2]"}),
    ),
)
