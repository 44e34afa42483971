"""The passes of a rebuild, with Spark and without Dagster."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from dagster_ckpt import agg, tumbling
from dagster_ckpt.runtime.declared.stream import Stream
from dagster_ckpt.runtime.driver.rebuild import Progress, RebuildHooks
from dagster_ckpt.runtime.run_mode import Mode
from tests.spark.input_files import drop
from tests.spark.streams import StreamUnderTest

pytestmark = pytest.mark.slow

DAY = datetime(2026, 1, 1, tzinfo=UTC)


def minutes(*each: int) -> pa.Table:
    times = [DAY + timedelta(minutes=minute) for minute in each]
    return pa.table({"k": ["a"] * len(each), "at": pa.array(times, pa.timestamp("us", "UTC"))})


@pytest.mark.parametrize("mode", list(Mode))
def test_windows_stay_open_from_pass_to_pass(spark: SparkSession, tmp_path: Path, mode: Mode) -> None:
    stream, inbox = StreamUnderTest(spark, tmp_path), tmp_path / "inbox"

    def hours(session: SparkSession) -> Stream:
        rows = session.readStream.schema("k string, at timestamp").parquet(str(inbox))
        windows = Stream(rows).with_watermark("at", "0s").key_by("k")
        return windows.window(tumbling("1 hour"), early=True, on_end="flush").aggregate(n=agg.count())

    drop(inbox, 0, minutes(10, 20))
    stream.run(hours)

    def more(_: Progress) -> None:
        if len(list(inbox.iterdir())) == 1:
            drop(inbox, 1, minutes(30))  # it is read in the next pass

    assert stream.rebuild(hours, hooks=RebuildHooks(on_progress=more), mode=mode)
    assert [row["n"] for row in stream.rows()] == [3]
    watermark_us, end = stream.history().manifest().watermark_us, DAY + timedelta(hours=1)
    assert watermark_us is not None
    assert (watermark_us >= end.timestamp() * 1e6) is (mode is Mode.AVAILABLE_NOW), "closed as a run closes it"


def test_one_that_rests_ends_when_it_is_asked_to(spark: SparkSession, tmp_path: Path) -> None:
    stream, inbox = StreamUnderTest(spark, tmp_path), tmp_path / "inbox"

    def count(session: SparkSession) -> Stream:
        rows = session.readStream.schema("k string, at timestamp").parquet(str(inbox))
        return Stream(rows).key_by("k").aggregate(n=agg.count())

    drop(inbox, 0, minutes(10, 20))
    stream.run(count)
    made = list[Progress]()
    hooks = RebuildHooks(on_progress=made.append, stop_reason=lambda: "enough" if made else None)
    assert not stream.rebuild(count, hooks=hooks, pace=1e-6), "a rest of days"
    assert len(stream.history().manifest().ancestors) == 0
