"""A keyed stream whose store is elsewhere, and a crash in its middle."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from dagster_ckpt import CheckpointStore, agg
from dagster_ckpt.runtime.declared.stream import Stream
from dagster_ckpt.runtime.driver.stream_job import JobHooks
from dagster_ckpt.runtime.micro_batch.epoch_driver import CommittedEpoch
from dagster_ckpt.runtime.task.worker_engine import CacheOptions, EngineOptions
from dagster_ckpt.storage.stores.address import StoreAddress
from tests.spark.input_files import drop
from tests.spark.streams import FAST, StreamUnderTest

FILES, KEYS = 6, 500


class Crash(BaseException):
    """What a process would die of."""


def rows_of(number: int) -> pa.Table:
    keys = [f"key {(number * 37 + row) % KEYS}" for row in range(300)]
    return pa.table({"k": keys, "v": [number * row for row in range(300)]})


def restarts_where_it_was_and_equals_a_batch(
    spark_of_all: SparkSession, tmp_path: Path, inbox: Path, store: StoreAddress
) -> None:
    def function(spark: SparkSession) -> Stream:
        frame = spark.readStream.schema("k string, v long").option("maxFilesPerTrigger", "1").parquet(str(inbox))
        return Stream(frame).key_by("k").aggregate(rows=agg.count(), total=agg.sum("v"))

    def dies_after_two(epoch: CommittedEpoch) -> None:
        stream.epochs.append(epoch)
        if len(stream.epochs) == 2:
            raise Crash

    cache = tmp_path / "cache"
    stream = StreamUnderTest(spark_of_all, tmp_path, elsewhere=store)
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
