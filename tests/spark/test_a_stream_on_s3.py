"""Streams in an S3 store: worker processes with a cache on disk, a crash, readers of both kinds."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from dagster_ckpt import CheckpointStore, agg
from dagster_ckpt.clock import SystemClock
from dagster_ckpt.protocol.object_names import folder_of
from dagster_ckpt.runtime.declared.stream import Stream
from dagster_ckpt.runtime.driver.epoch_driver import CommittedEpoch
from dagster_ckpt.runtime.driver.stream_job import JobHooks
from dagster_ckpt.runtime.task.worker_engine import CacheOptions, EngineOptions
from dagster_ckpt.runtime.upstreams.downstream import Downstream
from dagster_ckpt.runtime.upstreams.upstream_stream import newest_of, read_table
from tests.spark.input_files import drop
from tests.spark.streams import FAST, StreamUnderTest
from tests.unit.history.made_streams import MadeStream, departures
from tests.worlds.s3_server import S3Server

FILES, KEYS = 6, 500


class Crash(BaseException):
    """What a process would die of."""


def rows_of(number: int) -> pa.Table:
    keys = [f"key {(number * 37 + row) % KEYS}" for row in range(300)]
    return pa.table({"k": keys, "v": [number * row for row in range(300)]})


def test_a_keyed_stream_on_s3_restarts_where_it_was_and_equals_a_batch(
    spark_of_all: SparkSession, tmp_path: Path, inbox: Path, s3_server: S3Server
) -> None:
    def function(spark: SparkSession) -> Stream:
        frame = spark.readStream.schema("k string, v long").option("maxFilesPerTrigger", "1").parquet(str(inbox))
        return Stream(frame).key_by("k").aggregate(rows=agg.count(), total=agg.sum("v"))

    def dies_after_two(epoch: CommittedEpoch) -> None:
        stream.epochs.append(epoch)
        if len(stream.epochs) == 2:
            raise Crash

    cache = tmp_path / "cache"
    stream = StreamUnderTest(spark_of_all, tmp_path, elsewhere=s3_server.empty())
    options = replace(FAST, engine=EngineOptions(cache=CacheOptions(str(cache))))
    for number in range(FILES):
        drop(inbox, number, rows_of(number))
    with pytest.raises(Crash):
        stream.run(function, options, JobHooks(on_commit=dies_after_two))
    first_writers_cache = set(cache.glob("*.run"))
    assert first_writers_cache
    stream.run(function, options)
    assert first_writers_cache <= set(cache.glob("*.run"))

    assert len(stream.epochs) == FILES
    rows = pa.concat_tables([rows_of(number) for number in range(FILES)])
    batch = rows.group_by("k").aggregate([("v", "count"), ("v", "sum")]).to_pylist()
    expected = sorted(({"k": row["k"], "rows": row["v_count"], "total": row["v_sum"]} for row in batch), key=repr)
    assert stream.rows() == expected

    history = CheckpointStore(stream.address.url, stream.address.options).stream(stream.name)
    assert history.name in CheckpointStore(stream.address.url, stream.address.options).streams()
    assert history.read(stream.epochs[0].manifest.epoch)["rows"].to_pylist() == [1] * 300
    assert not (tmp_path / "store").exists()


@pytest.mark.reads_streams
def test_a_stream_on_s3_feeds_another(spark_of_all: SparkSession, tmp_path: Path, s3_server: S3Server) -> None:
    """Spark's processes that plan and read get the storage options without showing them."""
    store = s3_server.empty()
    down = StreamUnderTest(spark_of_all, tmp_path, "down", shards=2, elsewhere=store)
    reads = Downstream(store, folder_of(("down",)), epochs_max=100, tasks=2)

    def function(spark: SparkSession) -> Stream:
        return read_table(spark, reads, newest_of(reads, ("up",), SystemClock())).where("flights > 1")

    up = MadeStream(store.url, "up", options=store.options)
    up.commit(departures({"UA": [1.0, 2.0], "AA": [1.0]}))
    down.run(function)
    up.commit(departures({"AA": [1.0], "DL": [1.0]}))
    down.run(function)
    up.close()
    table = CheckpointStore(store.url, store.options).stream("up").read()
    assert down.rows() == sorted((row for row in table.to_pylist() if row["flights"] > 1), key=repr)
    assert [row["carrier"] for row in down.rows()] == ["AA", "UA"]
