"""How many rows a second: a running count, sum and maximum, ours against Spark's own aggregation on RocksDB.

    .venv/bin/python benchmarks/first_figure.py [batches]

One million keys, batches of 200,000 rows, two cores, input and checkpoints on the local disk. Both sides take the same
files, one a trigger, in one process, one after the other. Spark's side keeps its state in RocksDB with changelog
checkpointing and throws its output away; ours writes state, change log and manifest durably. The first triggers of each
side fill the keys and warm the machine; a figure is the rows of the later ones over their whole triggers' time.
"""

import statistics
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from dagster_ckpt import Stream, agg
from dagster_ckpt.clock import SystemClock
from dagster_ckpt.protocol.lease import LeaseHolder
from dagster_ckpt.protocol.manifest import Owner
from dagster_ckpt.runtime.job import run_stream
from dagster_ckpt.runtime.session import open_session
from dagster_ckpt.runtime.stream_job import JobHooks, JobOptions, StreamJob
from dagster_ckpt.storage.address import StoreAddress
from dagster_ckpt.storage.opening import Opening
from dagster_ckpt.storage.processes import this_process

KEYS, ROWS, WARM = 1_000_000, 200_000, 10
SCHEMA = "k long, v double, w long"
ROCKSDB = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.shuffle.partitions": "2",
}


def main(batches: int) -> None:
    with tempfile.TemporaryDirectory(prefix="dagster-ckpt-benchmark-") as folder:
        root = Path(folder)
        inbox = _input(root / "input", WARM + batches)
        spark = _spark()
        figures = {"dagster-ckpt": _ours(spark, inbox, root), "Spark, RocksDB": _native(spark, inbox, root)}
        for name, seconds in figures.items():
            later = seconds[WARM:]
            print(
                f"{name:15} {ROWS * len(later) / sum(later):>9,.0f} rows a second   "
                f"trigger: median {statistics.median(later):.3f} s, worst {max(later):.3f} s, of {len(later)}"
            )
        ours, native = (sum(seconds[WARM:]) for seconds in figures.values())
        print(f"ours is {native / ours:.1f} times as fast")
        spark.stop()


def _input(folder: Path, batches: int) -> Path:
    folder.mkdir()
    for number in range(batches):
        chance = np.random.default_rng(number)
        rows = pa.table(
            {
                "k": chance.integers(0, KEYS, ROWS),
                "v": chance.random(ROWS),
                "w": chance.integers(0, 1_000, ROWS),
            }
        )
        pq.write_table(rows, folder / f"{number:05d}.parquet")
        time.sleep(0.002)  # files are taken in the order of their times
    return folder


def _spark() -> SparkSession:
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "4g")
        .config("spark.stage.maxConsecutiveAttempts", "1")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _frame(spark: SparkSession, inbox: Path) -> DataFrame:
    return spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", "1").parquet(str(inbox))


def _ours(spark: SparkSession, inbox: Path, root: Path) -> list[float]:
    """Seconds of each trigger: from one commit to the next."""
    stream = Stream(_frame(open_session(spark), inbox)).key_by("k")
    ends = [time.perf_counter()]
    job = StreamJob(
        asset="benchmark",
        stream=stream.aggregate(rows=agg.count(), total=agg.sum("v"), most=agg.max("w")),
        address=StoreAddress((root / "store").as_uri()),
        folder="benchmark",
        opening=lambda pipeline: Opening(
            stream="benchmark",
            owner=Owner("benchmark", "benchmark"),
            pipeline=pipeline,
            shards=8,
            holder=LeaseHolder("benchmark", "benchmark", this_process()),
            root_run="benchmark",
        ),
        options=JobOptions(),
    )
    run_stream(job, JobHooks(on_commit=lambda _: ends.append(time.perf_counter())), SystemClock())
    return [after - before for before, after in pairwise(ends)]


def _native(spark: SparkSession, inbox: Path, root: Path) -> list[float]:
    """Seconds of each trigger, as Spark reports them."""
    session = spark.newSession()
    for name, value in ROCKSDB.items():
        session.conf.set(name, value)
    session.conf.set("spark.sql.streaming.numRecentProgressUpdates", "100000")
    table = _frame(session, inbox).groupBy("k").agg(F.count("*"), F.sum("v"), F.max("w"))
    query = (
        table.writeStream.format("noop")
        .outputMode("update")
        .option("checkpointLocation", str(root / "native"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    worked = [progress for progress in query.recentProgress if progress.numInputRows]
    return [progress.durationMs["triggerExecution"] / 1000 for progress in worked]


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 30)
