"""Streams in an S3 store: worker processes with a cache on disk, a crash, readers of both kinds."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from dagster_ckpt import CheckpointStore
from dagster_ckpt.clock import SystemClock
from dagster_ckpt.protocol.object_names import folder_of
from dagster_ckpt.runtime.declared.stream import Stream
from dagster_ckpt.runtime.upstreams.downstream import Downstream
from dagster_ckpt.runtime.upstreams.upstream_stream import newest_manifest, read_table
from tests.spark.stream_with_a_crash import restarts_where_it_was_and_equals_a_batch
from tests.spark.streams import StreamUnderTest
from tests.unit.history.made_streams import MadeStream, departures
from tests.worlds.s3_server import S3Server


def test_a_keyed_stream_on_s3_restarts_where_it_was_and_equals_a_batch(
    spark_of_all: SparkSession, tmp_path: Path, inbox: Path, s3_server: S3Server
) -> None:
    restarts_where_it_was_and_equals_a_batch(spark_of_all, tmp_path, inbox, s3_server.empty())


@pytest.mark.reads_streams
def test_a_stream_on_s3_feeds_another(spark_of_all: SparkSession, tmp_path: Path, s3_server: S3Server) -> None:
    """Spark's processes that plan and read get the storage options without showing them."""
    store = s3_server.empty()
    down = StreamUnderTest(spark_of_all, tmp_path, "down", shards=2, elsewhere=store)
    reads = Downstream(store, folder_of(("down",)), epochs_max=100, tasks=2)

    def function(spark: SparkSession) -> Stream:
        return read_table(spark, reads, newest_manifest(reads, ("up",), SystemClock())).where("flights > 1")

    up = MadeStream(store.url, "up", options=store.options)
    up.commit(departures({"UA": [1.0, 2.0], "AA": [1.0]}))
    down.run(function)
    up.commit(departures({"AA": [1.0], "DL": [1.0]}))
    down.run(function)
    up.close()
    table = CheckpointStore(store.url, store.options).stream("up").read()
    assert down.rows() == sorted((row for row in table.to_pylist() if row["flights"] > 1), key=repr)
    assert [row["carrier"] for row in down.rows()] == ["AA", "UA"]
