"""An append-only stream on Spark: the table's small files become few, also across a crash, and no row is lost."""

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from dagster_ckpt.protocol.object_names import merge_count
from dagster_ckpt.runtime.declared.stream import Stream
from dagster_ckpt.runtime.driver.stream_job import JobHooks
from dagster_ckpt.runtime.micro_batch.epoch_driver import CommittedEpoch
from tests.spark.input_files import drop
from tests.spark.streams import Function, StreamUnderTest

EPOCHS = 5
PARTITIONS = 17


class Crash(BaseException):
    """What a process would die of."""


def spread(folder: Path) -> Function:
    """Each input file is an epoch, whose rows come in several partitions: as many small files."""

    def function(spark: SparkSession) -> Stream:
        frame = spark.readStream.schema("n long").option("maxFilesPerTrigger", "1").parquet(str(folder))
        return Stream(frame.repartition(PARTITIONS))

    return function


@pytest.mark.slow
def test_small_files_become_few_and_no_row_is_lost(stream: StreamUnderTest, inbox: Path) -> None:
    for number in range(EPOCHS):
        drop(inbox, number, pa.table({"n": range(100 * number, 100 * number + 60)}))

    def until_a_merge(epoch: CommittedEpoch) -> None:
        stream.epochs.append(epoch)
        if epoch.manifest.statistics.merged_rows:
            raise Crash

    with pytest.raises(Crash):
        stream.run(spread(inbox), hooks=JobHooks(until_a_merge))
    stream.run(spread(inbox))

    assert len(stream.epochs) == EPOCHS
    written = sum(len(epoch.manifest.changes) for epoch in stream.epochs)
    merged = [epoch.manifest.statistics.merged_rows for epoch in stream.epochs if epoch.manifest.statistics.merged_rows]
    assert len(merged) >= 2, "before the crash, and after it"
    longest = max(len(epoch.manifest.files.tail) for epoch in stream.epochs)
    assert written == EPOCHS * PARTITIONS
    assert longest < 32 + 2 * PARTITIONS
    assert {merge_count(file.path) for file in stream.history().manifest().files.tail} == {0, 1}
    for epoch in stream.epochs:
        numbers = sorted(stream.table(epoch.manifest.epoch)["n"].to_pylist())
        assert numbers == [
            n
            for number in range(epoch.manifest.statistics.total_epochs)
            for n in range(100 * number, 100 * number + 60)
        ]
