"""Crashes, restarts and failures of every kind: each input row is in the table exactly once."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from dagster_ckpt import agg
from dagster_ckpt.errors import CheckpointDeclinedError, CheckpointTimeoutError, FencedError
from dagster_ckpt.ids import Epoch, Version
from dagster_ckpt.protocol.manifest.manifest import ManifestKind
from dagster_ckpt.runtime.declared.stream import Stream
from dagster_ckpt.runtime.driver.stream_job import Ending, JobHooks
from dagster_ckpt.runtime.micro_batch.epoch_driver import CommittedEpoch
from dagster_ckpt.runtime.run_mode import Mode
from dagster_ckpt.runtime.task.epoch_task import Replies
from dagster_ckpt.storage.chain.manifest_chain import ManifestChain
from dagster_ckpt.storage.stores.folder import folder_store
from dagster_ckpt.storage.writer.opening import Takeover
from dagster_ckpt.storage.writer.stream_writer import open_stream
from tests.spark.input_files import drop
from tests.spark.streams import FAST, Function, StreamUnderTest

ONCE = replace(FAST, tolerable_failures=0)


class Crash(BaseException):
    """Stands for the death of the process."""


def files(spark: SparkSession, folder: Path) -> DataFrame:
    return spark.readStream.schema("k string, v long").option("maxFilesPerTrigger", "1").parquet(str(folder))


def totals(*folders: Path, through: Callable[[DataFrame], DataFrame] = lambda frame: frame) -> Function:
    def function(spark: SparkSession) -> Stream:
        frame = files(spark, folders[0])
        for folder in folders[1:]:
            frame = frame.union(files(spark, folder))
        return Stream(through(frame)).key_by("k").aggregate(rows=agg.count(), total=agg.sum("v"))

    return function


def fill(folder: Path, first: int, last: int) -> None:
    for number in range(first, last):
        drop(folder, number, pa.table({"k": ["a", "b", None], "v": [number, 100 * number, 1]}))


def expected(*numbers: int) -> list[dict[str, object]]:
    rows = len(numbers)
    return [
        {"k": "a", "rows": rows, "total": sum(numbers)},
        {"k": "b", "rows": rows, "total": 100 * sum(numbers)},
        {"k": None, "rows": rows, "total": rows},
    ]


def test_every_shard_acks_every_epoch_also_one_without_a_row(stream: StreamUnderTest, inbox: Path) -> None:
    drop(inbox, 0, pa.table({"k": pa.array([], pa.string()), "v": pa.array([], pa.int64())}))
    drop(inbox, 1, pa.table({"k": ["a"], "v": [1]}))
    result = stream.run(totals(inbox))
    assert result.ending is Ending.INPUT_DONE
    empty, one = (epoch.manifest for epoch in stream.epochs)
    assert (empty.statistics.rows_in, empty.changes, [len(runs) for runs in empty.runs["groups"]]) == (0, (), [0] * 4)
    assert (one.statistics.rows_in, len(one.changes), sum(len(runs) for runs in one.runs["groups"])) == (1, 1, 1)


def test_a_filter_skips_no_file_of_minus_zero(stream: StreamUnderTest, inbox: Path) -> None:
    drop(inbox, 0, pa.table({"k": ["a", "b"], "x": [-0.0, 1.5]}))

    def zeros(spark: SparkSession) -> Stream:
        rows = spark.readStream.schema("k string, x double").parquet(str(inbox))
        return Stream(rows.where("x = 0D")).key_by("k").aggregate(rows=agg.count())

    stream.run(zeros)
    assert stream.rows() == [{"k": "a", "rows": 1}]


def nothing(frame: DataFrame) -> DataFrame:
    return frame.where("1 = 0")


def none_that_match(frame: DataFrame) -> DataFrame:
    return frame.join(frame.sparkSession.createDataFrame([], "k string"), "k")


@pytest.mark.parametrize("emptied", [nothing, none_that_match])
def test_a_batch_that_spark_finds_to_be_empty_before_it_runs_is_an_epoch(
    stream: StreamUnderTest, inbox: Path, emptied: Callable[[DataFrame], DataFrame]
) -> None:
    fill(inbox, 0, 1)
    stream.run(totals(inbox), ONCE)
    fill(inbox, 1, 2)
    result = stream.run(totals(inbox, through=emptied), ONCE)
    assert (result.ending, result.manifest.statistics.rows_in, len(stream.epochs)) == (Ending.INPUT_DONE, 0, 2)
    fill(inbox, 2, 3)
    stream.run(totals(inbox), ONCE)
    assert stream.rows() == expected(0, 2)


def test_a_restart_between_any_two_batches(stream: StreamUnderTest, inbox: Path) -> None:
    for number in range(4):
        fill(inbox, number, number + 1)
        stream.run(totals(inbox))
        assert stream.rows() == expected(*range(number + 1))
    again = stream.run(totals(inbox))
    assert (again.manifest.kind, again.manifest.epoch) == (ManifestKind.OPEN, stream.epochs[-1].manifest.epoch)


def test_a_crash_after_the_commit_and_before_sparks_own(stream: StreamUnderTest, inbox: Path) -> None:
    """After a run's first epoch, after one of several, and after the last one."""
    fill(inbox, 0, 4)
    for at in (1, 3, 4):

        def die(epoch: CommittedEpoch, at: int = at) -> None:
            stream.epochs.append(epoch)
            if len(stream.epochs) == at:
                raise Crash

        with pytest.raises(Crash):
            stream.run(totals(inbox), hooks=JobHooks(on_commit=die))
        assert stream.rows() == expected(*range(at))
    stream.run(totals(inbox))
    assert stream.rows() == expected(0, 1, 2, 3)
    assert len(stream.epochs) == 4


def test_a_union_keeps_the_place_of_each_source_also_when_they_change_places(
    stream: StreamUnderTest, inbox: Path
) -> None:
    left, right = inbox / "left", inbox / "right"
    fill(left, 0, 2)
    fill(right, 10, 13)
    stream.run(totals(left, right))
    fill(left, 2, 3)
    stream.run(totals(right, left))
    assert stream.rows() == expected(0, 1, 2, 10, 11, 12)


def fails_once(marker: Path, how: Callable[[], None]) -> Callable[[DataFrame], DataFrame]:
    """A user's step in which one task fails, the first time only."""

    def step(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            try:
                marker.touch(exist_ok=False)
            except FileExistsError:
                yield batch
            else:
                how()

    return lambda frame: frame.mapInArrow(step, frame.schema)


def raise_an_error() -> None:
    raise OSError("the disk is on fire")


def kill_this_worker() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("how", [raise_an_error, kill_this_worker])
def test_a_task_that_dies_declines_its_epoch_and_the_next_try_makes_it(
    stream: StreamUnderTest, inbox: Path, tmp_path: Path, how: Callable[[], None]
) -> None:
    fill(inbox, 0, 2)
    stream.run(totals(inbox, through=fails_once(tmp_path / "failed", how)))
    assert (tmp_path / "failed").exists()
    assert stream.rows() == expected(0, 1)
    terms = [epoch.manifest.term for epoch in stream.epochs]
    assert terms[0] == 2, "a new term works what the first one gave up"


def test_a_failure_beyond_what_is_tolerated_says_why_and_commits_nothing(
    stream: StreamUnderTest, inbox: Path, tmp_path: Path
) -> None:
    fill(inbox, 0, 1)
    with pytest.raises(CheckpointDeclinedError, match=r"nothing of it was committed.*the disk is on fire"):
        stream.run(totals(inbox, through=fails_once(tmp_path / "failed", raise_an_error)), ONCE)
    assert stream.rows() == []
    stream.run(totals(inbox), ONCE)
    assert stream.rows() == expected(0)


def test_a_task_that_is_silent_for_too_long_is_named_and_the_epoch_given_up(
    stream: StreamUnderTest, inbox: Path, tmp_path: Path
) -> None:
    fill(inbox, 0, 1)

    def sleep() -> None:
        threading.Event().wait(60)

    named = r"shards=\[0, 1, 2, 3\], hosts=\['\S+ \(task \d+ reads partition 0 of the input\)'\]"
    with pytest.raises(CheckpointTimeoutError, match=named):
        stream.run(totals(inbox, through=fails_once(tmp_path / "slept", sleep)), replace(ONCE, timeout_ms=3_000))
    stream.run(totals(inbox), ONCE)
    assert stream.rows() == expected(0)


def test_a_late_epoch_names_only_the_shards_still_running(stream: StreamUnderTest, inbox: Path, tmp_path: Path) -> None:
    fill(inbox, 0, 1)

    def sleep() -> None:
        threading.Event().wait(60)

    def function(spark: SparkSession) -> Stream:
        return Stream(fails_once(tmp_path / "slept", sleep)(files(spark, inbox)))

    # One file is one task, of one of the four shards.
    with pytest.raises(CheckpointTimeoutError, match=r"shards=\[0\], hosts=\['\S+ \(task \d+ works shards 0\)'\]"):
        stream.run(function, replace(ONCE, timeout_ms=3_000))


def test_a_fenced_writer_stops_with_that_error_and_the_other_goes_on(stream: StreamUnderTest, inbox: Path) -> None:
    fill(inbox, 0, 3)
    store = folder_store(stream.address.open(), stream.folder.name)

    def take_over(epoch: CommittedEpoch) -> None:
        stream.epochs.append(epoch)
        opening = replace(stream._opening(epoch.manifest.pipeline, None), take_over=Takeover.ALWAYS)
        open_stream(store, opening, stream.clock).close("done")

    with pytest.raises(FencedError, match="another writer took over"):
        stream.run(totals(inbox), hooks=JobHooks(on_commit=take_over))
    newest = ManifestChain(store, stream.clock).newest()
    assert newest is not None
    assert (newest.kind, newest.version) == (ManifestKind.OPEN, Version(3))
    assert stream.rows() == expected(0)
    stream.run(totals(inbox))
    assert stream.rows() == expected(0, 1, 2)


def test_a_writer_that_was_fenced_while_it_had_nothing_to_do_does_not_end_as_if_it_were_the_writer(
    stream: StreamUnderTest, inbox: Path
) -> None:
    fill(inbox, 0, 1)
    store = folder_store(stream.address.open(), stream.folder.name)

    def when_fenced() -> str | None:
        if not stream.epochs:
            return None
        opening = replace(stream._opening(stream.epochs[0].manifest.pipeline, None), take_over=Takeover.ALWAYS)
        open_stream(store, opening, stream.clock).close("done")
        return "a drain request"

    with pytest.raises(FencedError, match="another writer took over"):
        stream.run(totals(inbox), replace(FAST, mode=Mode.CONTINUOUS), JobHooks(stream.epochs.append, when_fenced))


def test_going_back_to_an_epoch_reads_again_what_came_after_it(stream: StreamUnderTest, inbox: Path) -> None:
    fill(inbox, 0, 3)
    stream.run(totals(inbox))
    first = stream.epochs[0].manifest.epoch
    fill(inbox, 3, 4)
    result = stream.run(totals(inbox), from_epoch=first)
    assert stream.rows() == expected(0, 1, 2, 3)
    assert stream.rows(first) == expected(0)
    assert result.manifest.abandoned


def test_streams_at_once_in_threads_of_one_process(spark_of_all: SparkSession, tmp_path: Path, inbox: Path) -> None:
    fill(inbox, 0, 3)
    streams = [StreamUnderTest(spark_of_all, tmp_path, name) for name in ("one", "two")]
    threads = [threading.Thread(target=each.run, args=(totals(inbox),)) for each in streams]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(100)
    assert [each.rows() for each in streams] == [expected(0, 1, 2)] * 2


def test_an_append_only_stream_has_each_row_once_over_a_crash(stream: StreamUnderTest, inbox: Path) -> None:
    fill(inbox, 0, 2)

    def function(spark: SparkSession) -> Stream:
        return Stream(files(spark, inbox).where("k is not null"))

    def die(epoch: CommittedEpoch) -> None:
        raise Crash

    with pytest.raises(Crash):
        stream.run(function, hooks=JobHooks(on_commit=die))
    fill(inbox, 2, 3)
    stream.run(function)
    values = {"a": (0, 1, 2), "b": (0, 100, 200)}
    assert stream.rows() == sorted(({"k": k, "v": v} for k, vs in values.items() for v in vs), key=repr)
    assert [epoch.manifest.statistics.rows_in for epoch in stream.epochs] == [2, 2]


def test_a_reply_that_is_lost_loses_no_row_of_a_stream_without_keys(
    stream: StreamUnderTest, inbox: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drop(inbox, 0, pa.table({"n": range(100)}))

    def appended(spark: SparkSession) -> Stream:
        return Stream(spark.readStream.schema("n long").parquet(str(inbox)).repartition(4))

    real, lost = Replies.addInPlace, iter(range(1))

    def loses_one(self: Replies, one: list[tuple[Epoch, str]], two: list[tuple[Epoch, str]]) -> list[tuple[Epoch, str]]:
        # Spark logs an accumulator's failed update and goes on (DAGScheduler.updateAccumulators).
        return one if next(lost, None) is not None else real(self, one, two)

    monkeypatch.setattr(Replies, "addInPlace", loses_one)
    stream.run(appended)
    assert sorted(stream.table()["n"].to_pylist()) == list(range(100))
