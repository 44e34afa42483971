from pathlib import Path

import dagster as dg
import pandas as pd
from dagster_ckpt import CheckpointCoordinatorResource, Stream, agg, build_streaming_definitions, streaming_asset
from dagster_pyspark import LazyPySparkResource
from departures import FOLDER, departures
from pyspark.sql import SparkSession


@streaming_asset(mode="continuous", autostart=True, deps=[departures])
def delay_by_carrier(spark: SparkSession) -> Stream:
    """How late each carrier leaves."""
    rows = spark.readStream.schema("carrier string, dep_delay double").parquet(str(FOLDER))
    return Stream(rows).key_by("carrier").aggregate(flights=agg.count(), mean_delay=agg.avg("dep_delay"))


@streaming_asset(mode="continuous", autostart=True)
def late_carriers(delay_by_carrier: Stream) -> Stream:
    """The carriers that leave more than 10 minutes late on average. One that no longer does is deleted."""
    return delay_by_carrier.where("mean_delay > 10")


@dg.asset
def delay_report(late_carriers: pd.DataFrame) -> dg.MaterializeResult:
    """An ordinary asset: it loads the newest epoch of a stream."""
    return dg.MaterializeResult(metadata={"late carriers": dg.MetadataValue.md(late_carriers.to_markdown(index=False))})


defs = dg.Definitions.merge(
    dg.Definitions(assets=[departures, delay_report]),
    dg.load_from_defs_folder(path_within_project=Path(__file__).parent),
    build_streaming_definitions(
        assets=[delay_by_carrier, late_carriers],
        checkpoints=CheckpointCoordinatorResource(url=Path(__file__).with_name("checkpoints").as_uri()),
        spark=LazyPySparkResource(spark_config={"spark.master": "local[2]"}),
    ),
)
