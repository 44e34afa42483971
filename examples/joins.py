"""An interval join of two streams: each ad that was shown, with the click that followed within ten minutes."""

import tempfile
from pathlib import Path

import dagster as dg
import pyarrow as pa
import pyarrow.parquet as pq
from dagster_pyspark import LazyPySparkResource
from pyspark.sql import SparkSession

from dagster_ckpt import CheckpointCoordinatorResource, Stream, build_streaming_definitions, streaming_asset

FOLDER = Path(tempfile.gettempdir(), "dagster-ckpt-examples", "joins")
SHOWN, CLICKED = FOLDER / "shown", FOLDER / "clicked"


def write(folder: Path, time: str, minute_of: dict[str, int]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    times = pa.array([minute * 60_000_000 for minute in minute_of.values()], pa.timestamp("us", "UTC"))
    pq.write_table(pa.table({"ad": list(minute_of), time: times}), folder / "0.parquet")


@dg.asset
def ads() -> None:
    """Three ads were shown; one was clicked at once, one much later, one never."""
    write(SHOWN, "shown_at", {"boots": 0, "tent": 5, "kayak": 7})
    write(CLICKED, "clicked_at", {"boots": 3, "tent": 90})


@streaming_asset(deps=[ads])
def clicks_of_ads(spark: SparkSession) -> Stream:
    """Ads without a click come out beside null, when no click that is in time can come any more."""
    shown = spark.readStream.schema("ad string, shown_at timestamp").parquet(str(SHOWN))
    clicked = spark.readStream.schema("ad string, clicked_at timestamp").parquet(str(CLICKED))
    left = Stream(shown).with_watermark("shown_at", "5 minutes").key_by("ad")
    right = Stream(clicked).with_watermark("clicked_at", "5 minutes").key_by("ad")
    return left.interval_join(right, "0s", "10 minutes", how="left", on_end="flush")


defs = dg.Definitions.merge(
    dg.Definitions(assets=[ads]),
    build_streaming_definitions(
        assets=[clicks_of_ads],
        checkpoints=CheckpointCoordinatorResource(url=(FOLDER / "checkpoints").as_uri()),
        spark=LazyPySparkResource(spark_config={"spark.master": "local[2]"}),
    ),
)
