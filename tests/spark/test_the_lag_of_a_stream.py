"""How far a stream is behind its files, as Spark sees them, and behind its upstream."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from dagster_ckpt import Stream, agg
from dagster_ckpt.clock import SystemClock
from dagster_ckpt.protocol.object_names import folder_of
from dagster_ckpt.runtime.driver.stream_job import JobHooks
from dagster_ckpt.runtime.lag.lag import Lag, SourceLag
from dagster_ckpt.runtime.run_mode import Mode
from dagster_ckpt.runtime.upstreams.downstream import Downstream
from dagster_ckpt.runtime.upstreams.upstream_stream import newest_manifest, read_table
from tests.spark.input_files import START_S, drop
from tests.spark.streams import FAST, StreamUnderTest

MEASURED_OFTEN = replace(FAST, lag_interval_ms=20)


def a_file(inbox: Path, number: int) -> int:
    """One more file; returns its size."""
    return drop(inbox, number, pa.table({"k": ["a", "b"], "v": [number, number]})).stat().st_size


def counts(inbox: Path, files: int) -> object:
    def function(spark: SparkSession) -> Stream:
        read = spark.readStream.schema("k string, v long").option("maxFilesPerTrigger", files)
        return Stream(read.parquet(str(inbox))).key_by("k").aggregate(n=agg.count())

    return function


def test_files_and_bytes_that_wait_fall_to_0_as_epochs_are_committed(stream: StreamUnderTest, inbox: Path) -> None:
    sizes = [a_file(inbox, number) for number in range(5)]
    lags: list[Lag | None] = []
    stream.run(counts(inbox, 1), MEASURED_OFTEN, JobHooks(on_lag=lags.append))  # type: ignore[arg-type]
    known = [lag.waiting for lag in lags if lag is not None]
    left = [(len(sizes[at:]), sum(sizes[at:]), (START_S + at) * 1000) for at in range(5)]
    assert {(lag.files, lag.file_bytes, lag.since_ms) for lag in known} <= {*left, (0, 0, None)}
    assert (known[0].files, known[-1]) == (5, SourceLag(files=0, file_bytes=0)), known
    assert [lag.files for lag in known] == sorted((lag.files or 0 for lag in known), reverse=True)


def test_files_that_come_between_two_looks_of_spark_wait(stream: StreamUnderTest, inbox: Path) -> None:
    a_file(inbox, 0)
    lags: list[Lag | None] = []

    def stop_reason() -> str | None:
        known = [lag.waiting.files for lag in lags if lag is not None]
        if known[-1:] == [0] and len(list(inbox.glob("*.parquet"))) == 1:
            a_file(inbox, 1)
            a_file(inbox, 2)
        return "seen" if known[-1:] == [2] else None

    options = replace(MEASURED_OFTEN, mode=Mode.CONTINUOUS, checkpoint_interval_ms=3_600_000, run_for_ms=60_000)
    hooks = JobHooks(on_lag=lags.append, stop_reason=stop_reason)
    assert stream.run(counts(inbox, 10), options, hooks).reason == "seen"  # type: ignore[arg-type]


@pytest.mark.reads_streams
def test_epochs_of_an_upstream_that_are_not_consumed_wait_since_the_oldest_was_committed(
    spark_of_all: SparkSession, tmp_path: Path, inbox: Path
) -> None:
    up, down = (StreamUnderTest(spark_of_all, tmp_path, name) for name in ("up", "down"))
    a_file(inbox, 0)
    up.run(counts(inbox, 1))  # type: ignore[arg-type]
    lags: list[Lag | None] = []

    def read(spark: SparkSession) -> Stream:
        reads = Downstream(down.address, folder_of(("down",)), 1, 2)
        return read_table(spark, reads, newest_manifest(reads, ("up",), SystemClock()))

    def waits_for(epochs: int) -> list[int]:
        del lags[:]
        down.run(read, MEASURED_OFTEN, JobHooks(on_lag=lags.append))
        known = [lag.waiting for lag in lags if lag is not None]
        assert known[0].epochs == epochs
        assert known[-1] == SourceLag(epochs=0)
        return [lag.since_ms for lag in known if lag.since_ms is not None]

    waits_for(1)
    for number in (1, 2, 3):
        a_file(inbox, number)
    up.run(counts(inbox, 1))  # type: ignore[arg-type]
    committed_ms = [entry.time_ms for entry in up.history().manifest().retained][-3:]
    since_ms = waits_for(3)
    assert since_ms[0] == committed_ms[0]
    assert set(since_ms) <= set(committed_ms)
