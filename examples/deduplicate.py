"""Each event once, however often it was sent."""

import tempfile
from pathlib import Path

import dagster as dg
import pyarrow as pa
import pyarrow.parquet as pq
from dagster_pyspark import LazyPySparkResource
from pyspark.sql import SparkSession

from dagster_ckpt import CheckpointCoordinatorResource, Stream, build_streaming_definitions, streaming_asset

FOLDER = Path(tempfile.gettempdir(), "dagster-ckpt-examples", "deduplicate")
EVENTS = FOLDER / "events"


@dg.asset
def events() -> None:
    """Two files: the sender was not sure that the first had arrived, and sent some of it again."""
    EVENTS.mkdir(parents=True, exist_ok=True)
    for number, ids in enumerate([["a", "b", "b"], ["b", "c", "a"]]):
        at = pa.array([60_000_000 * (ord(each) - ord("a")) for each in ids], pa.timestamp("us", "UTC"))
        pq.write_table(pa.table({"event_id": ids, "at": at}), EVENTS / f"{number}.parquet")


@streaming_asset(deps=[events])
def events_once(spark: SparkSession) -> Stream:
    """The first row of each id. An id is forgotten a day of event time after its row, so state stays small."""
    rows = spark.readStream.schema("event_id string, at timestamp").parquet(str(EVENTS))
    return Stream(rows).with_watermark("at", "1 hour").key_by("event_id").deduplicate(expire_after="1 day")


defs = dg.Definitions.merge(
    dg.Definitions(assets=[events]),
    build_streaming_definitions(
        assets=[events_once],
        checkpoints=CheckpointCoordinatorResource(url=(FOLDER / "checkpoints").as_uri()),
        spark=LazyPySparkResource(spark_config={"spark.master": "local[2]"}),
    ),
)
