"""A second code location of the shop: a stream whose input can break it."""

import os
from pathlib import Path

from dagster_pyspark import LazyPySparkResource
from pyspark.sql import SparkSession

from dagster_ckpt import (
    CheckpointCoordinatorResource,
    Recovery,
    Stream,
    agg,
    build_streaming_definitions,
    streaming_asset,
)

FOLDER = Path(os.environ["SHOP"]) / "data" / "refunds"
STORE = (Path(os.environ["SHOP"]) / "checkpoints").as_uri()


@streaming_asset(
    group_name="refunds",
    mode="continuous",
    checkpoint_interval="1s",
    shards=1,
    recovery=Recovery(backoff="1s", lease_timeout="15s"),
)
def refunds_by_shop(spark: SparkSession) -> Stream:
    """What each shop has refunded, in euros."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    rows = spark.readStream.schema("shop string, amount string").json(str(FOLDER))
    return (
        Stream(rows.selectExpr("shop", "cast(amount as double) as euros"))
        .key_by("shop")
        .aggregate(refunds=agg.count(), euros=agg.sum("euros"))
    )


defs = build_streaming_definitions(
    assets=[refunds_by_shop],
    checkpoints=CheckpointCoordinatorResource(url=STORE, event_interval="1s"),
    spark=LazyPySparkResource(spark_config={"spark.master": "local[1]"}),
)
