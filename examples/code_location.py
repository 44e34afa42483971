"""A code location that names each part itself, and an ordinary asset that loads a stream's table."""

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
    EpochIOManager,
    LsmStateBackendResource,
    Recovery,
    Stream,
    agg,
    build_recovery_sensor,
    streaming_asset,
)

FOLDER = Path(tempfile.gettempdir(), "dagster-ckpt-examples", "code_location")
SALES = FOLDER / "sales"
checkpoints = CheckpointCoordinatorResource(url=(FOLDER / "checkpoints").as_uri(), checkpoint_interval="5s")


@dg.asset(group_name="sales")
def sales() -> None:
    """One more file each time."""
    SALES.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"shop": ["N", "S"], "amount": [3, 4]}), SALES / f"{len(list(SALES.iterdir()))}.parquet")


@streaming_asset(deps=[sales], group_name="sales", shards=4, recovery=Recovery(max_attempts=3))
def sales_by_shop(spark: SparkSession) -> Stream:
    """What each shop has sold."""
    rows = spark.readStream.schema("shop string, amount long").parquet(str(SALES))
    return Stream(rows).key_by("shop").aggregate(total=agg.sum("amount"))


@dg.asset(group_name="sales")
def best_shop(sales_by_shop: pd.DataFrame) -> dg.MaterializeResult[None]:
    """Loads the table of the newest epoch, as any asset loads another."""
    best = sales_by_shop.sort_values("total").iloc[-1]
    return dg.MaterializeResult(metadata={"shop": best["shop"], "total": int(best["total"])})


defs = dg.Definitions(
    assets=[sales, sales_by_shop, best_shop],
    sensors=[build_recovery_sensor([sales_by_shop])],
    resources={
        "checkpoints": checkpoints,
        "state": LsmStateBackendResource(memory_limit="128 MiB"),
        "spark": LazyPySparkResource(spark_config={"spark.master": "local[2]"}),
        "epochs": EpochIOManager(checkpoints=checkpoints),
    },
)
