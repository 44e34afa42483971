"""Asset checks of a stream: at the end of its runs, after some epochs, and one that holds back what is downstream."""

import tempfile
from pathlib import Path

import dagster as dg
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from dagster_pyspark import LazyPySparkResource
from pyspark.sql import SparkSession

from dagster_ckpt import (
    CheckpointCoordinatorResource,
    Stream,
    agg,
    build_streaming_definitions,
    epoch_checks,
    streaming_asset,
)

FOLDER = Path(tempfile.gettempdir(), "dagster-ckpt-examples", "checks_of_a_stream")
MOVES = FOLDER / "moves"


@dg.asset
def moves() -> None:
    """One more file of what came into the store or left it. The second takes out more than there is."""
    MOVES.mkdir(parents=True, exist_ok=True)
    number = len(list(MOVES.iterdir()))
    pq.write_table(pa.table({"item": ["tent"], "quantity": [-6 if number else 5]}), MOVES / f"{number}.parquet")


@streaming_asset(deps=[moves])
def stock(spark: SparkSession) -> Stream:
    """How many of each item are there."""
    rows = spark.readStream.schema("item string, quantity long").parquet(str(MOVES))
    return Stream(rows).key_by("item").aggregate(quantity=agg.sum("quantity"))


@dg.asset_check(asset=stock, blocking=True)
def none_is_negative(stock: pd.DataFrame) -> dg.AssetCheckResult:
    """Runs at the end of each run of the stream, and before the report."""
    return dg.AssetCheckResult(passed=bool((stock["quantity"] >= 0).all()))


@dg.asset_check(asset=stock)
def some_items_are_there(stock: pa.Table) -> dg.AssetCheckResult:
    """Runs by itself too, in `stock_checks_job`, after every five epochs: also while the stream runs."""
    return dg.AssetCheckResult(passed=stock.num_rows > 0)


@dg.asset
def stock_report(stock: pd.DataFrame) -> dg.MaterializeResult[None]:
    return dg.MaterializeResult(metadata={"quantity": int(stock["quantity"].sum())})


defs = dg.Definitions.merge(
    dg.Definitions(assets=[moves, stock_report]),
    build_streaming_definitions(
        assets=[stock],
        checkpoints=CheckpointCoordinatorResource(url=(FOLDER / "checkpoints").as_uri()),
        spark=LazyPySparkResource(spark_config={"spark.master": "local[2]"}),
        checks=[none_is_negative, epoch_checks([some_items_are_there], every_epochs=5)],
    ),
)
