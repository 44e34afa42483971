from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from dagster_ckpt import agg
from dagster_ckpt.errors import CheckpointDeclinedError
from dagster_ckpt.runtime.declared.stream import Stream
from dagster_ckpt.runtime.driver.stream_job import Ending, JobHooks
from dagster_ckpt.runtime.micro_batch.spark_checkpoint import SparkCheckpoint
from dagster_ckpt.runtime.run_mode import Mode
from tests.spark.input_files import drop
from tests.spark.streams import FAST, StreamUnderTest

START = datetime(2013, 1, 1, tzinfo=UTC)


def micros(time: datetime) -> int:
    return round(time.timestamp()) * 1_000_000


def test_where_a_source_begins_is_committed_before_its_first_row_is_worked(
    stream: StreamUnderTest, tmp_path: Path
) -> None:
    """The rate source begins at the moment it is started, as Kafka's `latest` does."""
    ready = tmp_path / "ready"

    def fail_until_ready(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if not ready.exists():
                raise OSError("not yet")
            yield batch

    def function(spark: SparkSession) -> Stream:
        rate = spark.readStream.format("rate").option("rowsPerSecond", "20").load()
        return Stream(rate.mapInArrow(fail_until_ready, rate.schema)).key_by("value").aggregate(n=agg.count())

    with pytest.raises(CheckpointDeclinedError, match="not yet"):
        stream.run(function, replace(FAST, mode=Mode.CONTINUOUS, tolerable_failures=0))
    begun = stream.history().manifest(2)
    assert (begun.statistics.rows_in, begun.sources[0].current) == (0, None)
    assert begun.sources[0].initial is not None
    ready.touch()

    def once_there_are_rows() -> str | None:
        rows = stream.epochs[-1].manifest.statistics.total_rows_in if stream.epochs else 0
        return "enough" if rows else None

    hooks = JobHooks(stream.epochs.append, stop_reason=once_there_are_rows)
    result = stream.run(function, replace(FAST, mode=Mode.CONTINUOUS), hooks)
    assert result.manifest.sources[0].initial == begun.sources[0].initial
    values = sorted(stream.table()["value"].to_pylist())
    assert values == list(range(len(values)))
    assert set(stream.table()["n"].to_pylist()) == {1}


def test_rollback_to_epoch_0_reads_a_source_of_latest_from_where_the_stream_began(stream: StreamUnderTest) -> None:
    """The rate source begins at the moment it is started, as Kafka's `latest` does: asked again, it would begin now."""

    def function(spark: SparkSession) -> Stream:
        rate = spark.readStream.format("rate").option("rowsPerSecond", "20").load()
        return Stream(rate).key_by("value").aggregate(at=agg.min("timestamp"))

    def until(value: int) -> JobHooks:
        def reason() -> str | None:
            newest = stream.epochs[-1].manifest if stream.epochs else None
            return "enough" if newest is not None and newest.statistics.total_rows_in > value else None

        return JobHooks(stream.epochs.append, stop_reason=reason)

    stream.run(function, replace(FAST, mode=Mode.CONTINUOUS), until(20))
    first = {row["value"]: row["at"] for row in stream.rows()}
    begun = stream.history().manifest().sources[0].initial
    assert stream.history().rollback(0).epoch == 0
    assert [(each.initial, each.current) for each in stream.history().manifest().sources] == [(begun, None)]
    stream.epochs.clear()
    fork = stream.history().fork("again", epoch=0)
    stream.run(function, replace(FAST, mode=Mode.CONTINUOUS), until(len(first)))
    again = {row["value"]: row["at"] for row in stream.rows()}
    assert first.items() <= again.items(), "every row of before, with the time it had"
    copy = replace(stream, name="again", epochs=[])
    copy.run(function)
    assert fork.manifest().sources[0].initial == begun
    assert first.items() <= {row["value"]: row["at"] for row in copy.rows()}.items()


@pytest.mark.parametrize("mode", list(Mode))
def test_where_a_source_begins_is_committed_also_where_no_row_comes(
    stream: StreamUnderTest, inbox: Path, monkeypatch: pytest.MonkeyPatch, mode: Mode
) -> None:
    """Kafka's `latest` on a quiet topic; here an empty folder, presented as such a source."""
    monkeypatch.setattr(SparkCheckpoint, "initials", lambda scratch: ("here",))
    asked: list[None] = []

    def soon() -> str | None:
        asked.append(None)
        return "enough" if len(asked) == 3 else None

    def function(spark: SparkSession) -> Stream:
        return Stream(spark.readStream.schema("k string").parquet(str(inbox)))

    manifest = stream.run(function, replace(FAST, mode=mode), JobHooks(stop_reason=soon)).manifest
    assert [(source.initial, source.current) for source in manifest.sources] == [("here", None)]
    assert (manifest.epoch, manifest.statistics.total_rows_in) == (2, 0)


def test_a_source_without_an_available_now_is_read_once_and_that_is_its_end(stream: StreamUnderTest) -> None:
    def function(spark: SparkSession) -> Stream:
        return Stream(spark.readStream.format("rate").option("rowsPerSecond", "20").load())

    assert stream.run(function, replace(FAST, tolerable_failures=0)).ending is Ending.INPUT_DONE


def test_the_watermark_follows_the_newest_event_time_and_never_goes_back(stream: StreamUnderTest, inbox: Path) -> None:
    minutes: list[list[int | None]] = [[0, 30], [60, 10], [20, 5], [None, None]]
    for number, batch in enumerate(minutes):
        times = [None if at is None else START + timedelta(minutes=at) for at in batch]
        drop(inbox, number, pa.table({"k": ["a", "b"], "at": pa.array(times, pa.timestamp("us", "UTC"))}))

    def function(spark: SparkSession) -> Stream:
        frame = spark.readStream.schema("k string, at timestamp").option("maxFilesPerTrigger", "1").parquet(str(inbox))
        by_time = Stream(frame).with_watermark("at", "10 minutes")
        return by_time.key_by("k").aggregate(last=agg.last("at"), n=agg.count())

    stream.run(function)
    manifests = [epoch.manifest for epoch in stream.epochs]
    at = [micros(START + timedelta(minutes=minute)) for minute in (20, 50, 50, 50)]
    assert [manifest.watermark_us for manifest in manifests] == at
    assert manifests[-1].event_times_us == (micros(START + timedelta(minutes=60)),)


def test_an_append_only_stream_has_event_time_too(stream: StreamUnderTest, inbox: Path) -> None:
    drop(inbox, 0, pa.table({"at": pa.array([START, None], pa.timestamp("us"))}))

    def function(spark: SparkSession) -> Stream:
        return Stream(spark.readStream.schema("at timestamp_ntz").parquet(str(inbox))).with_watermark("at", "1 day")

    stream.run(function)
    assert stream.history().manifest().watermark_us == micros(START - timedelta(days=1))


def test_the_manifest_knows_each_file_and_offset(stream: StreamUnderTest, inbox: Path) -> None:
    paths = [drop(inbox, number, pa.table({"k": ["a"]})) for number in range(2)]

    def function(spark: SparkSession) -> Stream:
        return Stream(spark.readStream.schema("k string").option("maxFilesPerTrigger", "1").parquet(str(inbox)))

    stream.run(function)
    [position] = stream.history().manifest().sources
    assert [file.path for file in position.files.tail] == [path.as_uri() for path in paths]
    assert (position.previous, position.current) == ('{"logOffset":0}', '{"logOffset":1}')


def test_many_files_go_to_an_index_and_none_is_read_again(stream: StreamUnderTest, inbox: Path) -> None:
    for number in range(510):
        drop(inbox, number, pa.table({"k": [number]}))

    def function(spark: SparkSession) -> Stream:
        return Stream(spark.readStream.schema("k long").parquet(str(inbox)))

    stream.run(function)
    [position] = stream.history().manifest().sources
    assert (sum(index.entries for index in position.files.index), len(position.files.tail)) == (510, 0)
    drop(inbox, 510, pa.table({"k": [510]}))
    stream.run(function)
    assert sorted(stream.table()["k"].to_pylist()) == list(range(511))


def test_a_file_with_an_old_date_that_comes_late_is_read(stream: StreamUnderTest, inbox: Path) -> None:
    drop(inbox, 1_000_000, pa.table({"k": ["new"]}))  # eleven days after number 0

    def function(spark: SparkSession) -> Stream:
        return Stream(spark.readStream.schema("k string").parquet(str(inbox)))

    stream.run(function)
    drop(inbox, 0, pa.table({"k": ["old"]}))
    stream.run(function)
    assert stream.rows() == [{"k": "new"}, {"k": "old"}]
