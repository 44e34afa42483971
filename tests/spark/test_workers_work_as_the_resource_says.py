"""How worker processes are set up: by the options of `LsmStateBackendResource`, and by their first task."""

import gc
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from dagster_ckpt import KeyedState, ProcessContext, ProcessFunction, agg
from dagster_ckpt.runtime.declared.stream import Stream
from dagster_ckpt.runtime.spark.session import open_session
from dagster_ckpt.runtime.task.worker_engine import EngineOptions
from tests.spark.input_files import drop
from tests.spark.streams import FAST, StreamUnderTest


def test_a_small_memory_limit_makes_a_worker_write_in_the_middle_of_an_epoch(
    stream: StreamUnderTest, inbox: Path
) -> None:
    def function(spark: SparkSession) -> Stream:
        frame = spark.readStream.schema("k string").parquet(str(inbox))
        return Stream(frame).key_by("k").aggregate(n=agg.count())

    written = []
    for number, limit_bytes in enumerate([EngineOptions().memory_limit_bytes, 1 << 20]):
        before = set(stream.folder.rglob("*.arrow"))
        drop(inbox, number, pa.table({"k": [f"key {number} {row}" for row in range(50_000)]}))
        stream.run(function, replace(FAST, tasks_max=1, engine=EngineOptions(memory_limit_bytes=limit_bytes)))
        written.append(len(set(stream.folder.rglob("*.arrow")) - before))
    assert written[0] == 1
    assert written[1] > 3


def test_threads_of_a_worker_share_what_they_free(spark: SparkSession) -> None:
    def seen(_: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"value": [os.environ.get("MALLOC_ARENA_MAX", "")]})

    [row] = open_session(spark).range(1, numPartitions=1).mapInArrow(seen, "value string").collect()
    assert row["value"] == "1"


def _daemon(session: SparkSession) -> str:
    """The file whose process forks the session's workers."""

    def seen(_: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"value": [sys.argv[0]]})

    [row] = session.range(1, numPartitions=1).mapInArrow(seen, "value string").collect()
    return Path(row["value"]).name


def test_workers_start_from_the_installed_package(spark: SparkSession) -> None:
    assert _daemon(open_session(spark)) == "worker_daemon.py"


def test_a_daemon_that_the_user_has_chosen_stays(spark: SparkSession) -> None:
    context: Any = spark.sparkContext
    settings = context._jsc.sc().conf()
    settings.set("spark.python.daemon.module", "pyspark.daemon")
    try:
        assert _daemon(open_session(spark)) == "daemon.py"
    finally:
        settings.remove("spark.python.daemon.module")


@dataclass(frozen=True)
class Exempt(ProcessFunction):
    """How many objects its process exempts from garbage collection."""

    output = pa.schema([("objects", pa.int64())])

    def on_rows(self, rows: pa.Table, state: KeyedState, context: ProcessContext) -> pa.Table:
        return pa.table({"objects": [gc.get_freeze_count()]})


def test_garbage_collection_between_two_tasks_leaves_out_what_the_process_has_loaded(
    stream: StreamUnderTest, inbox: Path
) -> None:
    def function(spark: SparkSession) -> Stream:
        frame = spark.readStream.schema("k string").option("maxFilesPerTrigger", "1").parquet(str(inbox))
        return Stream(frame).key_by("k").process(Exempt())

    for number in range(3):
        drop(inbox, number, pa.table({"k": ["a"]}))
    stream.run(function, replace(FAST, tasks_max=1))
    assert max(stream.table()["objects"].to_pylist()) > 50_000
