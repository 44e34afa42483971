"""A failed micro-batch is retried, each time by a new writer, up to `tolerable_failures` times in a row."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter

from dagster_ckpt.errors import CheckpointDeclinedError, CheckpointError, StoreUnavailableError
from dagster_ckpt.runtime.driver import stream_run
from dagster_ckpt.runtime.driver.stream_job import Ending, JobHooks
from dagster_ckpt.runtime.driver.streaming_query import EpochQuery
from dagster_ckpt.storage.writer.stream_writer import StreamWriter, open_stream
from tests.spark.streams import FAST, StreamUnderTest
from tests.spark.test_nothing_is_lost_and_nothing_counted_twice import expected, fill, totals
from tests.spark.ways import SPARK


def fails_twice_a_batch(tries: Path) -> Callable[[DataFrame], DataFrame]:
    """A step of the user's that fails the first two times it gets each file. It leaves a file in `tries` each time."""
    tries.mkdir()

    def step(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            number = batch.column("v")[0].as_py()
            before = len(list(tries.glob(f"{number}-*")))
            (tries / f"{number}-{before}").touch()
            if before < 2:
                raise OSError("the disk is on fire")
            yield batch

    return lambda frame: frame.mapInArrow(step, frame.schema)


def test_each_retry_has_a_new_writer_and_a_committed_epoch_resets_the_count(
    stream: StreamUnderTest, inbox: Path, tmp_path: Path
) -> None:
    fill(inbox, 0, 2)
    through = fails_twice_a_batch(tmp_path / "tries")
    result = stream.run(totals(inbox, through=through), replace(FAST, tolerable_failures=2))
    assert result.ending is Ending.INPUT_DONE
    assert stream.rows() == expected(0, 1)
    assert [epoch.manifest.term for epoch in stream.epochs] == [3, 6]


def test_one_failure_more_than_is_tolerated_ends_the_run(stream: StreamUnderTest, inbox: Path, tmp_path: Path) -> None:
    fill(inbox, 0, 1)
    tries = tmp_path / "tries"
    with pytest.raises(CheckpointDeclinedError, match="the disk is on fire"):
        stream.run(totals(inbox, through=fails_twice_a_batch(tries)), replace(FAST, tolerable_failures=1))
    assert len(list(tries.iterdir())) == 2
    assert stream.rows() == []


@pytest.mark.ways(SPARK)
def test_a_spark_process_that_starts_too_late_costs_no_retry(
    stream: StreamUnderTest, inbox: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(inbox, 0, 1)
    start, starts = EpochQuery.start, iter(range(3))

    def on_a_crowded_host(query: EpochQuery, writer: DataStreamWriter) -> None:
        if next(starts, None) is not None:
            # As Spark says it of a source in Python, whose process it waits ten seconds for.
            raise StreamingQueryException(
                "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Python worker failed to connect "
                "back. SQLSTATE: XXKST"
            )
        start(query, writer)

    monkeypatch.setattr(EpochQuery, "start", on_a_crowded_host)
    stream.run(totals(inbox), replace(FAST, tolerable_failures=0))
    assert stream.rows() == expected(0)
    fill(inbox, 1, 1)
    starts = iter(range(1000))
    with pytest.raises(CheckpointError, match=r"asset=flights/delays, sources=.*inbox.*connect back"):
        stream.run(totals(inbox), replace(FAST, tolerable_failures=0, timeout_ms=100, backoff_ms_max=30))


class Refuses:
    """A call that the store refuses the first `times` times."""

    def __init__(self, call: Callable[..., Any], times: int) -> None:
        self.call, self.left, self.made = call, times, 0

    def __call__(self, *args: Any) -> Any:
        self.made += 1
        if self.made <= self.left:
            raise StoreUnavailableError("no space left on device")
        return self.call(*args)


def test_an_opening_that_the_store_refuses_is_one_of_the_tries(
    stream: StreamUnderTest, inbox: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(inbox, 0, 1)
    opening = Refuses(open_stream, 2)
    monkeypatch.setattr(stream_run, "open_stream", opening)
    stream.run(totals(inbox), replace(FAST, tolerable_failures=2))
    assert stream.rows() == expected(0)
    assert opening.made == 3
    opening.made, opening.left = 0, 99
    with pytest.raises(StoreUnavailableError, match="no space left"):
        stream.run(totals(inbox), replace(FAST, tolerable_failures=2))
    assert opening.made == 3


def test_a_run_that_must_end_ends_also_while_its_opening_is_refused(
    stream: StreamUnderTest, inbox: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opening = Refuses(open_stream, 99)
    monkeypatch.setattr(stream_run, "open_stream", opening)
    with pytest.raises(StoreUnavailableError):
        stream.run(totals(inbox), replace(FAST, tolerable_failures=99), JobHooks(stop_reason=lambda: "canceled"))
    assert opening.made == 1


def test_a_reopening_that_the_store_refuses_is_one_of_the_tries(
    stream: StreamUnderTest, inbox: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(inbox, 0, 1)
    reopening = Refuses(StreamWriter.reopen, 2)

    def reopen(writer: StreamWriter) -> Any:
        return reopening(writer)

    monkeypatch.setattr(StreamWriter, "reopen", reopen)
    through = fails_twice_a_batch(tmp_path / "tries")
    stream.run(totals(inbox, through=through), replace(FAST, tolerable_failures=4))
    assert stream.rows() == expected(0)
    assert reopening.made == 4


def test_a_reopening_that_is_refused_too_often_ends_the_run_as_the_store_that_refused_it(
    stream: StreamUnderTest, inbox: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(inbox, 0, 1)
    reopening = Refuses(StreamWriter.reopen, 99)

    def reopen(writer: StreamWriter) -> Any:
        return reopening(writer)

    monkeypatch.setattr(StreamWriter, "reopen", reopen)
    through = fails_twice_a_batch(tmp_path / "tries")
    with pytest.raises(StoreUnavailableError, match="no space left"):
        stream.run(totals(inbox, through=through), replace(FAST, tolerable_failures=3))
    assert reopening.made == 3
    assert stream.rows() == []


def test_an_epoch_that_tasks_could_not_write_fails_as_the_store_that_refused_it(
    stream: StreamUnderTest, inbox: Path
) -> None:
    fill(inbox, 0, 1)

    stream.folder.mkdir(parents=True)
    (stream.folder / "state").write_text("a file where tasks need a folder: the file system refuses each of them")
    with pytest.raises(StoreUnavailableError, match=r"the file system refused.*asset=flights/delays"):
        stream.run(totals(inbox), replace(FAST, tolerable_failures=0))
    assert stream.rows() == []
