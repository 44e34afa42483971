"""A broker that is away, and a process that is killed: the stream goes on where it was."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from dagster_ckpt import agg
from dagster_ckpt.errors import CheckpointError
from dagster_ckpt.history import CheckpointStore
from dagster_ckpt.runtime.declared.stream import Stream
from dagster_ckpt.runtime.driver.stream_job import JobHooks
from dagster_ckpt.runtime.run_mode import Mode
from tests.kafka.cluster import KEYS, Cluster, parsed, totals_of
from tests.servers.kafka import kafka
from tests.servers.processes import until
from tests.spark.input_files import drop
from tests.spark.streams import FAST, StreamUnderTest

pytestmark = pytest.mark.timeout(500)

CONTINUOUS = replace(FAST, mode=Mode.CONTINUOUS)
AWAY_S = 60


@pytest.fixture
def own(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A broker of this test alone."""
    with kafka(tmp_path_factory.mktemp("kafka")) as broker:
        cluster = Cluster(spark, broker)
        yield cluster
        cluster.close()


@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_a_stream_goes_on_after_its_broker_was_away_for_a_minute(
    own: Cluster, stream: StreamUnderTest, how: str
) -> None:
    own.create("away", partitions=2)
    own.produce("away", 0, 100)
    server = own.broker.server
    assert server is not None
    away = threading.Event()

    def be_away() -> None:
        if how == "killed":
            own.broker.kill()
            time.sleep(AWAY_S)
            own.broker.start()
        else:
            os.killpg(server.process.pid, signal.SIGSTOP)
            time.sleep(AWAY_S)
            os.killpg(server.process.pid, signal.SIGCONT)
        own.produce("away", 100, 200)

    absence = threading.Thread(target=be_away)

    def stop() -> str | None:
        read = stream.epochs[-1].manifest.statistics.total_rows_in if stream.epochs else 0
        if read == 100 and not away.is_set():
            away.set()
            absence.start()
        return "all is read" if read == 200 else None

    totals = own.totals(subscribe="away", startingOffsets="earliest")
    stream.run(totals, replace(CONTINUOUS, run_for_ms=400_000), JobHooks(stream.epochs.append, stop))
    absence.join()
    assert stream.rows() == totals_of(range(200))


@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside a source that has rows"])
def test_a_stream_that_begins_with_a_table_waits_until_its_broker_says_where_the_topic_ends(
    own: Cluster, stream: StreamUnderTest, tmp_path: Path, *, beside: bool
) -> None:
    past, files = [(number % KEYS, number) for number in range(50)], "k long, v long"
    own.create("late", partitions=2)
    own.produce("late", 50, 100)
    if beside:
        drop(tmp_path / "files", 0, pa.table({"k": [3], "v": [3_003]}))
    answers = {"kafka.default.api.timeout.ms": 2_000, "kafka.request.timeout.ms": 1_000, "fetchOffset.numRetries": 1}

    def totals(spark: SparkSession) -> Stream:
        rows = own.read(spark, subscribe="late", startingOffsets="latest", **answers).select(parsed()).select("d.*")
        whole = Stream(rows, initial=spark.createDataFrame(past, files))
        if beside:
            whole = whole.union(Stream(spark.readStream.schema(files).parquet(str(tmp_path / "files"))))
        return whole.key_by("k").aggregate(rows=agg.count(), total=agg.sum("v"))

    own.broker.kill()
    with pytest.raises(CheckpointError, match="kafka subscribe=late"):
        stream.run(totals, replace(FAST, tolerable_failures=0))
    assert stream.epochs == []
    own.broker.start()
    own.produce("late", 100, 150)  # while the stream is down, and has not begun
    stream.run(totals)
    own.produce("late", 150, 170)
    stream.run(totals)
    more = [range(3_003, 3_004)] if beside else []
    assert stream.rows() == totals_of(range(50), range(150, 170), *more)
    assert stream.history().verify().whole


def test_a_killed_process_leaves_nothing_to_be_read_twice(
    cluster: Cluster, stream: StreamUnderTest, tmp_path: Path
) -> None:
    cluster.create("killed", partitions=2)
    cluster.produce("killed", 0, 3_000)
    command = [sys.executable, "-m", "tests.kafka.a_stream_to_kill", cluster.broker.address, "killed", str(tmp_path)]
    child = subprocess.Popen(command, start_new_session=True)
    try:

        def has_epochs() -> bool:
            assert child.poll() is None, "it has read everything before it could be killed"
            store = CheckpointStore(stream.address.url)
            return stream.name in store.streams() and len(store.stream(stream.name).epochs()) >= 3

        until("three epochs are committed", has_epochs, 120)
    finally:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    before = stream.history().latest().epoch
    stream.run(cluster.totals(subscribe="killed", startingOffsets="earliest"))
    assert stream.rows() == totals_of(range(3_000))
    assert stream.epochs[0].manifest.epoch > before
