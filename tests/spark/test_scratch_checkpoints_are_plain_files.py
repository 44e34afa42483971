"""Spark writes a stream's scratch checkpoint without a process for each file, and without checksums beside them."""

import logging
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from dagster_ckpt import agg
from dagster_ckpt.runtime.declared.stream import Stream
from dagster_ckpt.runtime.micro_batch.spark_checkpoint import SparkCheckpoint
from dagster_ckpt.runtime.spark import scratch_files
from dagster_ckpt.runtime.spark.session import open_session
from tests.spark.input_files import drop
from tests.spark.streams import StreamUnderTest
from tests.spark.ways import SPARK

FILES = "spark.sql.streaming.checkpointFileManagerClass"


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was in a scratch checkpoint at its end."""
    found, remove = list[str](), SparkCheckpoint.remove

    def noted(checkpoint: SparkCheckpoint) -> None:
        folder = Path(checkpoint.location.removeprefix("file://"))
        found.extend(str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file())
        remove(checkpoint)

    monkeypatch.setattr(SparkCheckpoint, "remove", noted)
    return found


@pytest.fixture
def counts(inbox: Path) -> Any:
    def function(spark: SparkSession) -> Stream:
        frame = spark.readStream.schema("k string").option("maxFilesPerTrigger", 1).parquet(str(inbox))
        return Stream(frame).key_by("k").aggregate(n=agg.count())

    for number in range(3):
        drop(inbox, number, pa.table({"k": ["a", "b"]}))
    return function


@pytest.mark.ways(SPARK)
def test_a_checkpoint_has_no_checksums(stream: StreamUnderTest, counts: Any, written: list[str]) -> None:
    stream.run(counts)
    assert stream.rows() == [{"k": "a", "n": 3}, {"k": "b", "n": 3}]
    assert {"offsets/2", "commits/2", "sources/0/2"} <= set(written)
    assert not [file for file in written if file.endswith(".crc")]


def test_the_class_is_compiled_once(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    assert open_session(spark).conf.get(FILES) == scratch_files.PLAIN_FILES
    monkeypatch.setattr(scratch_files, "_SOURCE", "this is not Java")
    assert open_session(spark).conf.get(FILES) == scratch_files.PLAIN_FILES


def test_nothing_is_added_to_the_class_path(spark: SparkSession) -> None:
    """Not even a folder that is deleted at once: in a shared one, any local user could make it again."""
    open_session(spark)
    jvm: Any = spark._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    assert [url.toString() for url in loader.getURLs()] == []


def test_without_it_a_stream_runs_with_sparks_own(
    stream: StreamUnderTest,
    counts: Any,
    written: list[str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def refused(*_: object) -> None:
        raise Py4JError("Method privateLookupIn([]) does not exist")

    monkeypatch.setattr(scratch_files, "_is_defined", lambda *_: False)
    monkeypatch.setattr(scratch_files, "_define", refused)
    with caplog.at_level(logging.INFO, scratch_files.__name__):
        stream.run(counts)
    assert "privateLookupIn" in caplog.text
    assert stream.rows() == [{"k": "a", "n": 3}, {"k": "b", "n": 3}]
    assert [file for file in written if file.endswith(".crc")]
