"""The Spark of a race, and what each side's session is told."""

import sys
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from benchmarks.inputs import SCHEMA
from dagster_ckpt.runtime.spark.scratch_files import SPARKS_OWN

CORES = 2

_CONTEXT = {
    "spark.driver.memory": "4g",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Ours needs the first two; the third saves time wherever Python works, also for the rivals in Python.
    "spark.stage.maxConsecutiveAttempts": "1",
    "spark.stage.ignoreDecommissionFetchFailure": "false",
    "spark.python.unix.domain.socket.enabled": "true",
}

RIVALS = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # Without it each write of a key looks first whether the key is there.
    "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",
    "spark.sql.streaming.stateStore.rocksdb.blockCacheSizeMB": "512",
    # One a core. More partitions are more files and more round trips.
    "spark.sql.shuffle.partitions": str(CORES),
    # Plain renames on a local disk. Our own streams write by a class of ours (decision 88).
    "spark.sql.streaming.checkpointFileManagerClass": SPARKS_OWN,
    # What our own streams are given too: larger Arrow batches, whose bytes are not counted after each row.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",
    "spark.sql.execution.arrow.transformWithStateInPandas.maxRecordsPerBatch": "65536",
    "spark.sql.streaming.numRecentProgressUpdates": "100000",
    "spark.sql.session.timeZone": "UTC",
}


def start(folder: Path, more: Mapping[str, str] | None = None) -> SparkSession:
    """Spark on two cores of this machine, with `more` settings.

    Its own files, RocksDB's working copies too, lie below `folder`.
    """
    builder = SparkSession.builder.master(f"local[{CORES}]").config("spark.local.dir", str(folder / "spark"))
    for name, value in {**_CONTEXT, **(more or {})}.items():
        builder = builder.config(name, value)
    spark = builder.config("spark.pyspark.python", sys.executable).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def rivals_session(spark: SparkSession) -> SparkSession:
    """A session for Spark's own state, with what should make it faster and takes no safety."""
    session = spark.newSession()
    for name, value in RIVALS.items():
        session.conf.set(name, value)
    return session


def read_inbox(session: SparkSession, inbox: Path) -> DataFrame:
    """The input of running totals as every side reads it."""
    return read_folder(session, inbox, SCHEMA)


def read_folder(session: SparkSession, folder: Path, schema: str) -> DataFrame:
    """Parquet files, one a trigger."""
    return session.readStream.schema(schema).option("maxFilesPerTrigger", "1").parquet(str(folder))
