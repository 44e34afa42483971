"""Streams in a store that an earlier commit wrote go on from their newest epoch, and equal a batch."""

import fcntl
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from dagster_ckpt.history import CheckpointStore
from tests.fixtures.stores.read import STORES, unpacked
from tests.fixtures.stores.streams import (
    FORK,
    INBOX,
    OF_CHANGES,
    OF_NAMES,
    OF_TABLES,
    STREAMS,
    large_of,
    totals,
    totals_of,
)
from tests.fixtures.stores.write import follow
from tests.spark.streams import StreamUnderTest


@pytest.fixture
def inbox() -> Iterator[None]:
    """The folder of the sources, whose address is in the store: one test at a time has it."""
    with INBOX.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        shutil.rmtree(INBOX, ignore_errors=True)
        yield
        shutil.rmtree(INBOX)


@pytest.mark.parametrize("written", STORES, ids=lambda folder: folder.name)
@pytest.mark.usefixtures("inbox")
def test_each_stream_goes_on_and_equals_batch(spark_of_all: SparkSession, tmp_path: Path, written: Path) -> None:
    unpacked_store = CheckpointStore(unpacked(written, tmp_path).as_uri())

    def under_test(name: str) -> StreamUnderTest:
        shards = unpacked_store.stream(name).latest().shards
        return StreamUnderTest(spark_of_all, tmp_path, name, shards=shards)

    there = unpacked_store.streams()
    for stream in (each for each in (*STREAMS, *OF_TABLES, *OF_CHANGES, *OF_NAMES) if each.name in there):
        stream.fill(0, stream.later)
        goes_on = under_test(stream.name)
        goes_on.run(stream.function)
        assert sum(epoch.manifest.statistics.rows_in > 0 for epoch in goes_on.epochs) == stream.later - stream.stored
        assert goes_on.rows() == stream.batch(stream.later), stream.name
        assert goes_on.history().verify().whole, stream.name
    if FORK not in there:
        return
    fork, large = under_test(FORK), under_test("large")
    fork.run(totals("totals"))
    assert fork.rows() == totals_of(STREAMS[0].later)
    large.run(lambda session: follow(large, session))
    assert large.rows() == large_of(STREAMS[0].later)
    assert all(under_test(name).history().verify().whole for name in (FORK, "large"))
