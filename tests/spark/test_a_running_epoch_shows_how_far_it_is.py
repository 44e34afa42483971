"""The lease has the progress of a running epoch, as far as Spark reports it."""

import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from dagster_ckpt import agg
from dagster_ckpt.protocol.lease import EpochProgress
from dagster_ckpt.runtime.declared.stream import Stream
from dagster_ckpt.runtime.driver.stream_job import JobHooks
from tests.spark.input_files import drop
from tests.spark.streams import FAST, StreamUnderTest


def test_heartbeats_carry_the_tasks_done_and_the_slowest_task(
    stream: StreamUnderTest, inbox: Path, tmp_path: Path
) -> None:
    for number in range(2):
        drop(inbox, number, pa.table({"k": [f"k{number}"]}))
    go_on = tmp_path / "go_on"

    def first_waits(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            while batch["k"][0].as_py() == "k0" and not go_on.exists():
                time.sleep(0.02)
            yield batch

    def function(spark: SparkSession) -> Stream:
        # One file a partition, whatever their size.
        spark.conf.set("spark.sql.files.openCostInBytes", str(1 << 30))
        frame = spark.readStream.schema("k string").parquet(str(inbox))
        return Stream(frame.mapInArrow(first_waits, frame.schema)).key_by("k").aggregate(n=agg.count())

    seen: list[EpochProgress] = []

    def on_idle() -> None:
        work = stream.history().writer().work
        if work is not None:
            seen.append(work)
            if work.tasks_done == 1:
                go_on.touch()

    stream.run(function, FAST, JobHooks(on_idle=on_idle))
    work = next(each for each in seen if each.tasks_done == 1)
    assert (work.epoch, work.tasks) == (2, 2 + 2), "two read a file each, two work the shards"
    assert work.slowest is not None
    assert " reads partition " in work.slowest
    assert 1_000 <= work.elapsed_ms < 60_000
    assert 500 <= work.slowest_ms < 60_000
    assert stream.history().writer().work is None
    assert stream.rows() == [{"k": "k0", "n": 1}, {"k": "k1", "n": 1}]
