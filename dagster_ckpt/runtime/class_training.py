"""Loads the classes that a restarted stream needs, so that Spark's JVM can archive them.

    python -m dagster_ckpt.runtime.class_training

Starts Spark, runs a stream of one file, and waits for the JVM to end: only then is the archive complete.
"""

import os
import sys
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from dagster_ckpt.clock import SystemClock
from dagster_ckpt.operators import agg
from dagster_ckpt.protocol.lease import LeaseHolder
from dagster_ckpt.protocol.manifest.manifest import Owner, Pipeline
from dagster_ckpt.runtime.catalyst.planner import planner
from dagster_ckpt.runtime.declared.stream import Stream
from dagster_ckpt.runtime.driver.stream_job import JobHooks, JobOptions, StreamJob
from dagster_ckpt.runtime.driver.stream_run import run_stream
from dagster_ckpt.runtime.spark.session import announce_settings, open_session
from dagster_ckpt.storage.leases.process_identity import this_process
from dagster_ckpt.storage.stores.address import StoreAddress
from dagster_ckpt.storage.writer.opening import Opening

_NAME = "training"
_JVM_END_S_MAX = 300


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        announce_settings(os.environ)
        builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
        builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
        spark = builder.config("spark.local.dir", folder).config("spark.pyspark.python", sys.executable).getOrCreate()
        _run_a_stream(spark, Path(folder))
        gateway = spark.sparkContext._gateway  # noqa: SLF001  (only the gateway has the JVM's process)
        assert gateway is not None, "a session that was just made has a JVM"
        spark.stop()
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(_JVM_END_S_MAX)


def _run_a_stream(spark: SparkSession, folder: Path) -> None:
    inbox = folder / "inbox"
    inbox.mkdir()
    pq.write_table(pa.table({"key": [1, 2, 1], "value": [1, 2, 3]}), inbox / "rows.parquet")
    planner(spark)  # a stream of several steps, or of a query, has its plans read by it
    rows = open_session(spark).readStream.schema("key long, value long").parquet(str(inbox))
    stream = Stream(rows).key_by("key").aggregate(rows=agg.count(), total=agg.sum("value"))

    def opening(pipeline: Pipeline) -> Opening:
        return Opening(
            stream=_NAME,
            owner=Owner(_NAME, _NAME),
            pipeline=pipeline,
            shards=2,
            holder=LeaseHolder(_NAME, _NAME, this_process()),
            root_run=_NAME,
        )

    address = StoreAddress((folder / "store").as_uri())
    run_stream(StreamJob(_NAME, stream, address, _NAME, opening, JobOptions()), JobHooks(), SystemClock())


if __name__ == "__main__":
    main()
