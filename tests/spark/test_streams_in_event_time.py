"""Event-time steps on Spark: several inputs, epochs without input, late rows, idle inputs."""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

from dagster_ckpt import KeyedState, ProcessContext, ProcessFunction, ValueState, agg, tumbling
from dagster_ckpt.errors import CheckpointDeclinedError, IncompatibleStateError, InvalidPipelineError
from dagster_ckpt.runtime.declared.stream import Stream
from dagster_ckpt.runtime.driver.stream_job import JobHooks
from dagster_ckpt.runtime.run_mode import Mode
from tests.spark.input_files import drop
from tests.spark.streams import FAST, StreamUnderTest

START = datetime(2013, 1, 1, tzinfo=UTC)
SCHEMA = "k string, at timestamp, v long"
End = Literal["keep", "flush"]


def minute(at: float) -> datetime:
    return START + timedelta(minutes=at)


def rows(*of: tuple[str | None, float | None, int]) -> pa.Table:
    """Rows of key, minute and value."""
    keys, times, values = ([key for key, _, _ in of], [at for _, at, _ in of], [value for _, _, value in of])
    moments = pa.array([None if at is None else minute(at) for at in times], pa.timestamp("us", "UTC"))
    return pa.table({"k": pa.array(keys, pa.string()), "at": moments, "v": pa.array(values, pa.int64())})


def read(spark: SparkSession, folder: Path, delay: str = "0s", idle_after: str | None = None) -> Stream:
    frame = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", "1").parquet(str(folder))
    return Stream(frame).with_watermark("at", delay, idle_after).key_by("k")


def by_five_minutes(folder: Path, on_end: End = "keep", late: Any = "drop") -> Callable[[SparkSession], Stream]:
    def function(spark: SparkSession) -> Stream:
        windowed = read(spark, folder).window(tumbling("5 minutes"), on_end=on_end, late=late)
        return windowed.aggregate(n=agg.count(), total=agg.sum("v"))

    return function


def counted(stream: StreamUnderTest) -> list[tuple[Any, ...]]:
    found = stream.table().select(["k", "window_start", "n", "total"]).to_pylist()
    return sorted((row["k"], (row["window_start"] - START).seconds // 60, row["n"], row["total"]) for row in found)


def test_a_sentinel_at_an_end_of_64_bits_is_a_late_row_and_does_not_move_the_watermark(
    stream: StreamUnderTest, inbox: Path
) -> None:
    sentinels = pa.array([-(2**63), 2**63 - 1], pa.timestamp("us", "UTC"))
    broken = pa.table({"k": ["a", "a"], "at": sentinels, "v": pa.array([100, 200], pa.int64())})
    drop(inbox, 0, pa.concat_tables([rows(("a", 1, 1)), broken]))
    drop(inbox, 1, rows(("a", 2, 2)))
    manifest = stream.run(by_five_minutes(inbox, on_end="flush")).manifest
    assert counted(stream) == [("a", 0, 2, 3)]
    assert manifest.statistics.total_late_rows == 2
    assert manifest.event_times_us == (int(minute(2).timestamp() * 1_000_000),)


def test_windows_are_emitted_by_an_epoch_without_input_when_no_more_data_comes(
    stream: StreamUnderTest, inbox: Path
) -> None:
    drop(inbox, 0, rows(("a", 1, 1), ("b", 4, 2), ("a", 4.9, 4)))
    drop(inbox, 1, rows(("a", 7, 8)))
    manifest = stream.run(by_five_minutes(inbox)).manifest
    # The second batch moved the watermark past the first window, and no third came to let it out.
    assert counted(stream) == [("a", 0, 2, 5), ("b", 0, 1, 2)]
    assert [epoch.manifest.statistics.rows_in for epoch in stream.epochs] == [3, 1, 0]
    assert manifest.harvested_us == manifest.watermark_us
    assert manifest.batch_id == stream.epochs[1].manifest.batch_id

    # Nothing new: nothing is due, and no epoch is made. What is open stays open until its time has come.
    assert stream.run(by_five_minutes(inbox)).manifest.epoch == manifest.epoch
    drop(inbox, 2, rows(("a", 8, 16), ("a", 10, 32)))
    stream.run(by_five_minutes(inbox))
    assert counted(stream) == [("a", 0, 2, 5), ("a", 5, 2, 24), ("b", 0, 1, 2)]


def test_the_end_of_the_input_flushes_what_waits_with_on_end_flush(stream: StreamUnderTest, inbox: Path) -> None:
    drop(inbox, 0, rows(("a", 1, 1), ("b", 4, 2)))
    manifest = stream.run(by_five_minutes(inbox, on_end="flush")).manifest
    assert counted(stream) == [("a", 0, 1, 1), ("b", 0, 1, 2)]
    assert manifest.statistics.state_rows == 0
    # What belongs to a window that was flushed is late now; what comes after it is not.
    drop(inbox, 1, rows(("a", 2, 4), ("a", 14, 8)))
    last = stream.run(by_five_minutes(inbox, on_end="flush")).manifest
    assert counted(stream) == [("a", 0, 1, 1), ("a", 10, 1, 8), ("b", 0, 1, 2)]
    assert last.statistics.total_late_rows == 1


def test_a_continuous_stream_emits_windows_after_an_interval_without_data(stream: StreamUnderTest, inbox: Path) -> None:
    drop(inbox, 0, rows(("a", 1, 1)))
    drop(inbox, 1, rows(("a", 7, 8)))

    def closed() -> str | None:
        return "enough" if stream.epochs and stream.epochs[-1].manifest.statistics.rows_out else None

    hooks = JobHooks(stream.epochs.append, stop_reason=closed)
    stream.run(by_five_minutes(inbox), replace(FAST, mode=Mode.CONTINUOUS), hooks)
    assert counted(stream) == [("a", 0, 1, 1)]
    assert stream.epochs[-1].manifest.statistics.rows_in == 0


def test_late_rows_are_counted_and_kept_for_inspection(stream: StreamUnderTest, inbox: Path) -> None:
    function = by_five_minutes(inbox, late="keep")
    late = [("a", 1.0, 7), ("a", 1.0, 7), ("b", None, 9)]
    drop(inbox, 0, rows(("a", 6, 1)))
    drop(inbox, 1, rows(*late, ("a", 5.5, 2)))
    stream.run(function)
    kept = stream.history().late_rows()
    assert sorted(kept["v"].to_pylist()) == [7, 7, 9]  # the one without a time among them
    assert kept.schema.names == ["k", "at", "v"]
    assert stream.history().manifest().statistics.total_late_rows == 3
    drop(inbox, 2, rows(("c", 2, 3), ("a", 20, 4)))
    stream.run(function)
    assert sorted(stream.history().late_rows()["v"].to_pylist()) == [3, 7, 7, 9]
    assert counted(stream) == [("a", 5, 2, 3)]


def test_a_stream_that_keeps_no_late_rows_says_how_to(stream: StreamUnderTest, inbox: Path) -> None:
    drop(inbox, 0, rows(("a", 6, 1)))
    stream.run(by_five_minutes(inbox))
    with pytest.raises(InvalidPipelineError, match='give its step late="keep"'):
        stream.history().late_rows()
    with pytest.raises(IncompatibleStateError, match="late was"):
        stream.run(by_five_minutes(inbox, late="keep"))


def joined(left: Path, right: Path, how: str, on_end: End = "keep") -> Callable[[SparkSession], Stream]:
    def function(spark: SparkSession) -> Stream:
        other = Stream(
            spark.readStream.schema("k string, seen timestamp, w long")
            .option("maxFilesPerTrigger", "1")
            .parquet(str(right))
        )
        other = other.with_watermark("seen", "0s").key_by("k")
        return read(spark, left).interval_join(other, "-1 minute", "0s", how=how, on_end=on_end)

    return function


def seen(*of: tuple[str | None, float, int]) -> pa.Table:
    return rows(*of).rename_columns(["k", "seen", "w"])


def pairs_of(stream: StreamUnderTest) -> list[tuple[Any, ...]]:
    return sorted(((row["k"], row["v"], row["w"]) for row in stream.table().to_pylist()), key=repr)


def test_two_inputs_are_joined_in_one_query_and_it_goes_on_where_both_ended(
    stream: StreamUnderTest, tmp_path: Path
) -> None:
    left, right = tmp_path / "left", tmp_path / "right"
    drop(left, 0, rows(("a", 1, 1), ("b", 1, 2), (None, 1, 3)))
    drop(right, 0, seen(("a", 0.5, 10), ("a", 1, 11), ("a", 1.5, 12), (None, 1, 13)))
    function = joined(left, right, "left")
    stream.run(function)
    # Null equals nothing, and it need not be waited for.
    at_once = [("a", 1, 10), ("a", 1, 11), (None, 3, None)]
    assert pairs_of(stream) == at_once

    drop(left, 1, rows(("a", 2, 4), ("b", 9, 5)))
    drop(right, 1, seen(("b", 0.9, 14), ("a", 9, 15)))  # the first one comes late
    manifest = stream.run(function).manifest
    assert pairs_of(stream) == sorted([*at_once, ("a", 4, 11), ("a", 4, 12), ("b", 2, None)], key=repr)
    assert manifest.statistics.total_late_rows == 1
    assert [len(source.files.tail) for source in manifest.sources] == [2, 2]
    assert manifest.pipeline.inputs[0].sources != manifest.pipeline.inputs[1].sources

    stream.run(joined(left, right, "left", on_end="flush"))
    assert ("b", 5, None) in pairs_of(stream)


def test_a_stream_is_joined_with_itself(stream: StreamUnderTest, inbox: Path) -> None:
    drop(inbox, 0, rows(("a", 1, 1), ("a", 1.5, 2)))
    drop(inbox, 1, rows(("a", 2, 3)))

    def function(spark: SparkSession) -> Stream:
        once = read(spark, inbox)
        twice = Stream(once.frame.selectExpr("k", "at as later", "v as next")).with_watermark("later", "0s").key_by("k")
        return once.interval_join(twice, "1 second", "1 minute")

    manifest = stream.run(function).manifest
    assert sorted((row["v"], row["next"]) for row in stream.table().to_pylist()) == [(1, 2), (1, 3), (2, 3)]
    assert len(manifest.sources) == 1


def test_an_idle_input_does_not_hold_the_other_for_ever(stream: StreamUnderTest, tmp_path: Path) -> None:
    left, right = tmp_path / "left", tmp_path / "right"
    drop(left, 0, rows(("a", 1, 1)))
    drop(left, 1, rows(("a", 9, 2)))
    right.mkdir()

    def function(spark: SparkSession) -> Stream:
        return read(spark, left).interval_join(
            Stream(spark.readStream.schema("k string, seen timestamp, w long").parquet(str(right)))
            .with_watermark("seen", "0s", idle_after="1s")
            .key_by("k"),
            "-1 minute",
            "0s",
            how="left",
        )

    def out() -> str | None:
        return "enough" if stream.epochs and stream.epochs[-1].manifest.statistics.rows_out else None

    hooks = JobHooks(stream.epochs.append, stop_reason=out)
    stream.run(function, replace(FAST, mode=Mode.CONTINUOUS), hooks)
    assert [(row["v"], row["w"]) for row in stream.table().to_pylist()] == [(1, None)]


def test_rows_that_wait_behind_a_slow_epoch_are_not_those_of_an_idle_input(
    stream: StreamUnderTest, tmp_path: Path
) -> None:
    left, right, slow = tmp_path / "left", tmp_path / "right", tmp_path / "slow"
    drop(left, 0, rows(("a", 1, 1)))
    drop(right, 0, seen(("a", 1, 10)))

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if 99 in batch.column("w").to_pylist():
                slow.touch()
                time.sleep(3)
            yield batch

    def function(spark: SparkSession) -> Stream:
        schema = "k string, seen timestamp, w long"
        other = spark.readStream.schema(schema).option("maxFilesPerTrigger", "1").parquet(str(right))
        other_timed = Stream(other.mapInArrow(work, schema)).with_watermark("seen", "0s", "2s").key_by("k")
        return read(spark, left, idle_after="2s").interval_join(other_timed, "-1 minute", "0s")

    def feed() -> None:
        if stream.epochs and not (right / "00001.parquet").exists():
            drop(right, 1, seen(("a", 60, 99)))
        if slow.exists() and not (left / "00001.parquet").exists():
            # It comes while the other input is worked, which takes longer than an input may be silent.
            drop(left, 1, rows(("a", 2, 2), ("a", 1.5, 3)))

    def out() -> str | None:
        all_in = stream.epochs and stream.epochs[-1].manifest.statistics.total_rows_in == 5
        return "enough" if all_in else None

    hooks = JobHooks(stream.epochs.append, stop_reason=out, on_idle=feed)
    stream.run(function, replace(FAST, mode=Mode.CONTINUOUS), hooks)
    assert stream.history().manifest().statistics.total_late_rows == 0
    assert pairs_of(stream) == [("a", 1, 10), ("a", 2, 10), ("a", 3, 10)]


def test_the_newest_row_of_each_key_is_kept_until_it_expires(stream: StreamUnderTest, inbox: Path) -> None:
    drop(inbox, 0, rows(("a", 3, 1), ("a", 1, 2), ("b", 1, 3)))
    drop(inbox, 1, rows(("a", 4, 4), ("b", 0.5, 5)))
    drop(inbox, 2, rows(("c", 12, 6)))

    def function(spark: SparkSession) -> Stream:
        return read(spark, inbox, delay="2 minutes").deduplicate(keep="last", expire_after="8 minutes")

    stream.run(function)
    assert sorted((row["k"], row["v"]) for row in stream.table().to_pylist()) == [("a", 4), ("c", 6)]


def test_a_key_that_was_silent_for_long_leaves_an_aggregate(stream: StreamUnderTest, inbox: Path) -> None:
    drop(inbox, 0, rows(("a", 1, 1), ("b", 1, 2)))
    drop(inbox, 1, rows(("a", 9, 4)))
    drop(inbox, 2, rows(("a", 12, 8)))

    def function(spark: SparkSession) -> Stream:
        frame = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", "1").parquet(str(inbox))
        timed = Stream(frame).with_watermark("at", "0s")
        return timed.key_by("k", expire_after="10 minutes").aggregate(total=agg.sum("v"))

    stream.run(function)
    assert stream.rows() == [{"k": "a", "total": 13}]


def test_a_process_function_keeps_state_and_sets_timers(stream: StreamUnderTest, inbox: Path) -> None:
    class Silence(ProcessFunction):
        """Emits each key without a row for five minutes."""

        output = pa.schema([("k", pa.string()), ("since", pa.timestamp("us", "UTC"))])
        state = {"last": ValueState(pa.schema([("at", pa.timestamp("us", "UTC"))]))}  # noqa: RUF012 (as users write it)
        timers_within = timedelta(minutes=5)

        def on_rows(self, rows: pa.Table, state: KeyedState, context: ProcessContext) -> None:
            newest = rows.group_by("k").aggregate([("at", "max")]).rename_columns(["k", "at"])
            keys = newest.select(["k"])
            state.value("last").put(newest)
            state.timers.set(keys, pc.add(newest.column("at"), timedelta(minutes=5)))

        def on_watermark(self, timers: pa.Table, state: KeyedState, context: ProcessContext) -> pa.Table:
            last = state.value("last").get(timers.select(["k"]))
            due = pc.equal(pc.add(last.column("at"), timedelta(minutes=5)), timers.column("_time"))
            silent = pa.table({"k": timers.column("k"), "since": last.column("at")}, schema=self.output)
            return silent.filter(due)

    def function(spark: SparkSession) -> Stream:
        return read(spark, inbox).process(Silence())

    drop(inbox, 0, rows(("a", 1, 1), ("b", 1, 2)))
    drop(inbox, 1, rows(("a", 3, 3)))
    drop(inbox, 2, rows(("c", 7, 4)))
    stream.run(function)
    assert [(row["k"], row["since"]) for row in stream.table().to_pylist()] == [("b", minute(1))]
    # The state and the timers are there after a restart.
    drop(inbox, 3, rows(("c", 9, 5)))
    stream.run(function)
    assert sorted((row["k"], row["since"]) for row in stream.table().to_pylist()) == [
        ("a", minute(3)),
        ("b", minute(1)),
    ]


@pytest.mark.parametrize(
    ("made", "error", "said"),
    [
        (
            lambda rows: rows.select(["k"]),
            InvalidPipelineError,
            r"this column is missing: add it\. column=v.*operator=process.*on_rows.*asset=flights/delays",
        ),
        (
            lambda rows: rows["none"],
            CheckpointDeclinedError,
            r"the process function raised an error.*operator=process.*on_rows.*KeyError.*asset=flights/delays",
        ),
    ],
)
def test_an_error_of_a_process_function_is_reported_and_nothing_is_lost(
    stream: StreamUnderTest, inbox: Path, made: Callable[[pa.Table], Any], error: type[Exception], said: str
) -> None:
    class Passing(ProcessFunction):
        output = pa.schema([("k", pa.string()), ("v", pa.int64())])

        def __init__(self, made: Callable[[pa.Table], Any]) -> None:
            self.made = made

        def on_rows(self, rows: pa.Table, state: KeyedState, context: ProcessContext) -> pa.Table:
            table: pa.Table = self.made(rows)
            return table

    drop(inbox, 0, rows(("a", 1, 1), ("b", 1, 2)))
    with pytest.raises(error, match=said):
        stream.run(lambda spark: read(spark, inbox).process(Passing(made)), replace(FAST, tolerable_failures=0))
    assert stream.history().latest().epoch == 0
    stream.run(lambda spark: read(spark, inbox).process(Passing(lambda rows: rows.select(["k", "v"]))))
    assert stream.rows() == [{"k": "a", "v": 1}, {"k": "b", "v": 2}]
