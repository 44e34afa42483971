"""How a run ends: its time is up, it was stopped, it was interrupted; and what it leaves behind."""

import gc
import json
import os
import signal
import tempfile
import threading
import time
import weakref
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from dagster_ckpt import agg
from dagster_ckpt.clock import SystemClock
from dagster_ckpt.runtime.declared.stream import Stream
from dagster_ckpt.runtime.driver.source_loop import SourceLoop
from dagster_ckpt.runtime.driver.stream_job import Ending, JobHooks
from dagster_ckpt.runtime.micro_batch.epoch_driver import CommittedEpoch
from dagster_ckpt.runtime.run_mode import Mode
from tests.spark.input_files import drop
from tests.spark.streams import FAST, Function, StreamUnderTest
from tests.spark.ways import DRIVER, SPARK

CONTINUOUS = replace(FAST, mode=Mode.CONTINUOUS)


def counting(inbox: Path) -> Function:
    def function(spark: SparkSession) -> Stream:
        frame = spark.readStream.schema("k string").option("maxFilesPerTrigger", "1").parquet(str(inbox))
        return Stream(frame).key_by("k").aggregate(n=agg.count())

    return function


def lease_of(stream: StreamUnderTest) -> dict[str, object]:
    newest = max((stream.folder / "lease").iterdir())
    lease: dict[str, object] = json.loads(newest.read_text())
    return lease


class ClockAhead(SystemClock):
    """The real clock, moved on at will."""

    ahead_ms = 0

    def monotonic_ms(self) -> int:
        return super().monotonic_ms() + self.ahead_ms


@pytest.mark.parametrize("way", [pytest.param(way, marks=pytest.mark.ways(way)) for way in (SPARK, DRIVER)])
def test_a_continuous_run_takes_in_what_arrives_until_its_time_is_up(
    stream: StreamUnderTest, inbox: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))
    drop(inbox, 0, pa.table({"k": ["a"]}))
    stream.clock = clock = ClockAhead()
    ticks: list[None] = []
    triggers: list[str] = []
    start = DataStreamWriter.start

    def seen(writer: DataStreamWriter) -> StreamingQuery:
        query = start(writer)
        triggers.append(str(query._jsq.streamingQuery().trigger()))
        return query

    monkeypatch.setattr(DataStreamWriter, "start", seen)

    def on_commit(epoch: CommittedEpoch) -> None:
        stream.epochs.append(epoch)
        if len(stream.epochs) == 1:
            drop(inbox, 1, pa.table({"k": ["a"]}))
        else:
            clock.ahead_ms = 12 * 3_600_000

    hooks = JobHooks(on_commit, on_idle=lambda: ticks.append(None))
    result = stream.run(counting(inbox), replace(CONTINUOUS, run_for_ms=12 * 3_600_000), hooks)
    assert (result.ending, result.reason) == (Ending.RUN_FOR, None)
    assert stream.rows() == [{"k": "a", "n": 2}]
    assert ticks
    assert lease_of(stream)["closed"] == "run_for"
    assert {path.name for path in (tmp_path / "scratch").glob("*/*/*")} <= {"lock", "elsewhere"}
    by_spark = ["ProcessingTimeTrigger(100)"]  # the interval of the asset, in milliseconds
    assert triggers == (by_spark if way == SPARK else [])


def test_a_stopped_run_finishes_the_epoch_in_progress(stream: StreamUnderTest, inbox: Path) -> None:
    for number in range(3):
        drop(inbox, number, pa.table({"k": ["a"]}))
    working, go_on = threading.Event(), threading.Event()

    def on_commit(epoch: CommittedEpoch) -> None:
        stream.epochs.append(epoch)
        working.set()
        assert go_on.wait(60)

    def stop_reason() -> str | None:
        if working.is_set():
            go_on.set()
            return "a drain request"
        return None

    result = stream.run(counting(inbox), CONTINUOUS, JobHooks(on_commit, stop_reason))
    assert (result.ending, result.reason) == (Ending.STOPPED, "a drain request")
    assert len(stream.epochs) in {1, 2}
    assert stream.rows() == [{"k": "a", "n": len(stream.epochs)}]
    assert lease_of(stream)["closed"] == "a drain request"


@pytest.mark.ways(DRIVER)
def test_nothing_keeps_the_loop_that_has_ended(
    stream: StreamUnderTest, inbox: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loops: list[weakref.ref[SourceLoop]] = []
    start = SourceLoop.start

    def seen(loop: SourceLoop) -> None:
        loops.append(weakref.ref(loop))
        start(loop)

    monkeypatch.setattr(SourceLoop, "start", seen)
    drop(inbox, 0, pa.table({"k": ["a"]}))
    stream.run(counting(inbox))
    gc.collect()
    assert [each() for each in loops] == [None]


@pytest.mark.ways(SPARK)
def test_nothing_keeps_a_query_that_has_ended(
    stream: StreamUnderTest, inbox: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queries: list[weakref.ref[StreamingQuery]] = []
    start = DataStreamWriter.start

    def seen(writer: DataStreamWriter) -> StreamingQuery:
        query = start(writer)
        queries.append(weakref.ref(query))
        return query

    monkeypatch.setattr(DataStreamWriter, "start", seen)
    drop(inbox, 0, pa.table({"k": ["a"]}))
    stream.run(counting(inbox))
    assert len(queries) == 1
    ends = time.monotonic() + 60
    while queries[0]() is not None and time.monotonic() < ends:  # the thread that waited for its end is still ending
        gc.collect()
        time.sleep(0.05)
    # The JVM keeps all of its plans, its session and its sources as long as Python keeps it.
    assert queries[0]() is None


def test_a_drain_request_in_the_store_ends_one_run_and_not_the_next(stream: StreamUnderTest, inbox: Path) -> None:
    drop(inbox, 0, pa.table({"k": ["a"]}))

    def on_commit(epoch: CommittedEpoch) -> None:
        stream.epochs.append(epoch)
        stream.history().drain()

    result = stream.run(counting(inbox), CONTINUOUS, JobHooks(on_commit))
    assert (result.ending, result.reason) == (Ending.STOPPED, lease_of(stream)["closed"])
    assert str(result.reason).startswith("drained, as was asked for on ")
    drop(inbox, 1, pa.table({"k": ["a"]}))
    stream.run_id = "the next one"
    assert stream.run(counting(inbox), FAST).ending is Ending.INPUT_DONE
    assert stream.rows() == [{"k": "a", "n": 2}]


@pytest.fixture
def interrupts() -> Iterator[None]:
    # Spark's handler, set when its context began, cancels all jobs of the process.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupt_soon(working: threading.Event) -> None:
    def interrupt() -> None:
        assert working.wait(60)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()


@pytest.mark.usefixtures("interrupts")
def test_an_interrupted_run_finishes_the_epoch_in_progress_and_closes_its_lease(
    stream: StreamUnderTest, inbox: Path
) -> None:
    drop(inbox, 0, pa.table({"k": ["a"]}))
    working = threading.Event()

    def on_commit(epoch: CommittedEpoch) -> None:
        stream.epochs.append(epoch)
        working.set()
        threading.Event().wait(1)

    interrupt_soon(working)
    with pytest.raises(KeyboardInterrupt):
        stream.run(counting(inbox), CONTINUOUS, JobHooks(on_commit))
    assert lease_of(stream)["closed"] == "interrupted: KeyboardInterrupt"
    assert stream.rows() == [{"k": "a", "n": 1}]


@pytest.mark.usefixtures("interrupts")
def test_an_epoch_that_outlasts_the_drain_is_given_up(stream: StreamUnderTest, inbox: Path, tmp_path: Path) -> None:
    drop(inbox, 0, pa.table({"k": ["a"]}))
    begun = tmp_path / "begun"

    def stuck(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        begun.touch()
        threading.Event().wait(60)
        yield from batches

    def function(spark: SparkSession) -> Stream:
        frame = counting(inbox)(spark).frame
        return Stream(frame.mapInArrow(stuck, frame.schema)).key_by("k").aggregate(n=agg.count())

    working = threading.Event()

    def on_idle() -> None:
        if begun.exists():
            working.set()

    interrupt_soon(working)
    with pytest.raises(KeyboardInterrupt):
        stream.run(function, replace(CONTINUOUS, drain_ms=300), JobHooks(on_idle=on_idle))
    assert lease_of(stream)["closed"] == "interrupted: KeyboardInterrupt"
    stream.run(counting(inbox))
    assert stream.rows() == [{"k": "a", "n": 1}]


def test_a_query_stopped_from_outside_is_started_again(stream: StreamUnderTest, inbox: Path) -> None:
    drop(inbox, 0, pa.table({"k": ["a"]}))
    sessions: list[SparkSession] = []

    def function(spark: SparkSession) -> Stream:
        sessions.append(spark)
        return counting(inbox)(spark)

    def stop_once(epoch: CommittedEpoch) -> None:
        stream.epochs.append(epoch)
        if len(stream.epochs) == 1:
            drop(inbox, 1, pa.table({"k": ["a"]}))
            threading.Thread(target=sessions[0].streams.active[0].stop).start()

    def when_both_are_in() -> str | None:
        return "done" if len(stream.epochs) == 2 else None

    stream.run(function, CONTINUOUS, JobHooks(stop_once, when_both_are_in))
    assert stream.rows() == [{"k": "a", "n": 2}]


def test_a_query_stopped_from_outside_has_not_finished_its_input(stream: StreamUnderTest, inbox: Path) -> None:
    for number in range(4):
        drop(inbox, number, pa.table({"k": ["a"]}))
    sessions: list[SparkSession] = []

    def function(spark: SparkSession) -> Stream:
        sessions.append(spark)
        return counting(inbox)(spark)

    def stop_once(epoch: CommittedEpoch) -> None:
        stream.epochs.append(epoch)
        if len(stream.epochs) == 2:
            threading.Thread(target=sessions[0].streams.active[0].stop).start()
            threading.Event().wait(0.5)

    result = stream.run(function, hooks=JobHooks(stop_once))
    assert result.ending is Ending.INPUT_DONE
    assert stream.rows() == [{"k": "a", "n": 4}]


def test_an_error_that_the_caller_raises_after_a_commit_ends_the_run_as_it_is(
    stream: StreamUnderTest, inbox: Path
) -> None:
    drop(inbox, 0, pa.table({"k": ["a"]}))

    def on_commit(epoch: CommittedEpoch) -> None:
        raise ZeroDivisionError("Dagster is gone")

    with pytest.raises(ZeroDivisionError, match="Dagster is gone"):
        stream.run(counting(inbox), replace(FAST, tolerable_failures=0), JobHooks(on_commit))
    assert lease_of(stream)["closed"] is None, "the sensor must see that this was no clean end"


def test_a_run_whose_work_hangs_lets_its_lease_lapse_and_beats_again_when_it_moves(
    stream: StreamUnderTest, inbox: Path
) -> None:
    drop(inbox, 0, pa.table({"k": ["a"]}))
    stream.clock = clock = ClockAhead()
    beats: list[object] = []

    def hang(epoch: CommittedEpoch) -> None:
        # As in a call to a database that never answers: no time-out of ours reaches it.
        stream.epochs.append(epoch)
        clock.ahead_ms = FAST.timeout_ms + FAST.slack_ms + 1
        threading.Event().wait(1)  # a beat that was on its way
        before = lease_of(stream)["counter"]
        threading.Event().wait(2)
        beats.extend((before, lease_of(stream)["counter"]))

    result = stream.run(counting(inbox), hooks=JobHooks(hang))
    assert result.ending is Ending.INPUT_DONE
    assert beats[0] == beats[1]
    assert lease_of(stream)["closed"] == "input_done"


def test_an_idle_run_does_not_count_as_hung(stream: StreamUnderTest, inbox: Path) -> None:
    drop(inbox, 0, pa.table({"k": ["a"]}))
    stream.clock = clock = ClockAhead()
    beats: list[object] = []

    def idle() -> None:
        if stream.epochs and not beats:
            beats.append(lease_of(stream)["counter"])
        clock.ahead_ms += FAST.timeout_ms

    def when_it_has_beaten() -> str | None:
        return "done" if beats and lease_of(stream)["counter"] != beats[0] else None

    result = stream.run(counting(inbox), CONTINUOUS, JobHooks(stream.epochs.append, when_it_has_beaten, idle))
    assert result.ending is Ending.STOPPED
