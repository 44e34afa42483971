"""The ways in which an epoch's rows come to its state, drawn at random for each epoch: the table must not show it."""

import random
from collections.abc import Sequence

import pytest

from dagster_ckpt.protocol.manifest.manifest import ReadBy
from dagster_ckpt.runtime.driver.stream_query import StreamQuery
from dagster_ckpt.runtime.micro_batch import driver_work, epoch_plans
from dagster_ckpt.runtime.micro_batch.driver_work import DriverWork, TooManyRowsError, work_on
from dagster_ckpt.runtime.task.dataflow import Stage
from dagster_ckpt.runtime.task.scan import AnyScan, Piece
from tests.spark.streams import StreamUnderTest

SPARK, TASKS, DRIVER = "spark", "tasks", "driver"
"""Spark reads the files; tasks read them by Arrow; the driver does."""
WAYS = (SPARK, TASKS, DRIVER)


def mix_ways(patch: pytest.MonkeyPatch, seed: object, ways: Sequence[str] = WAYS) -> list[str]:
    """Let each epoch be worked in one of these ways, where it may be. Returns those that were taken, as they are."""
    chance, taken = random.Random(str(seed)), list[str]()
    work_by_arrow = StreamQuery._work_by_arrow

    def work(query: StreamQuery, batch_id: int) -> bool:
        taken.append(chance.choice(ways))
        if taken[-1] != SPARK and work_by_arrow(query, batch_id):
            return True
        taken[-1] = SPARK
        return False

    def on_pieces(
        stages: Sequence[Stage], scans: Sequence[AnyScan], pieces: Sequence[Piece], *, streams: bool
    ) -> DriverWork:
        if taken[-1] == TASKS:
            raise TooManyRowsError
        few = chance.choice([0, driver_work.BYTES_MAX])
        with pytest.MonkeyPatch.context() as limits:
            limits.setattr(driver_work, "BYTES_MAX", few)
            return work_on(stages, scans, pieces, streams=streams or few == 0)

    patch.setattr(StreamQuery, "_work_by_arrow", work)
    patch.setattr(epoch_plans, "work_on", on_pieces)
    return taken


def readers(stream: StreamUnderTest) -> list[ReadBy | None]:
    """Who read each epoch that had rows."""
    every = [epoch.manifest.statistics for epoch in stream.epochs]
    return [each.read_by for each in every if each.rows_in]
