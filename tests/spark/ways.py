"""The ways in which an epoch's rows come to its state, drawn at random for each epoch: the table must not show it."""

import random
from collections.abc import Sequence

import pyarrow as pa
import pytest

from dagster_ckpt.runtime.driver.stream_query import StreamQuery
from dagster_ckpt.runtime.micro_batch import epoch_plans
from dagster_ckpt.runtime.micro_batch.driver_work import TooManyRowsError, read_rows
from dagster_ckpt.runtime.task.dataflow import Stage
from dagster_ckpt.runtime.task.file_scan import FileRange, FileScan

SPARK, TASKS, DRIVER = "spark", "tasks", "driver"
"""Spark reads the files; tasks read them by Arrow; the driver does."""
WAYS = (SPARK, TASKS, DRIVER)


def mix_ways(patch: pytest.MonkeyPatch, seed: object, ways: Sequence[str] = WAYS) -> list[str]:
    """Let each epoch be worked in one of these ways, where it may be. Returns those that were taken, as they are."""
    chance, taken = random.Random(str(seed)), list[str]()
    work_files = StreamQuery._work_files

    def work(query: StreamQuery, batch_id: int) -> bool:
        taken.append(chance.choice(ways))
        if taken[-1] != SPARK and work_files(query, batch_id):
            return True
        taken[-1] = SPARK
        return False

    def read(stages: Sequence[Stage], scans: Sequence[FileScan], files: Sequence[FileRange]) -> list[pa.RecordBatch]:
        if taken[-1] == TASKS:
            raise TooManyRowsError
        return read_rows(stages, scans, files)

    patch.setattr(StreamQuery, "_work_files", work)
    patch.setattr(epoch_plans, "read_rows", read)
    return taken
