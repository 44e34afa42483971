"""The ways in which an epoch's rows come to its state, drawn at random for each epoch: the table must not show it."""

import random
from collections.abc import Callable, Sequence
from typing import cast

import pytest
from pyspark.sql import DataFrame

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
    """Let each epoch be worked in one of these ways, where it may be. Returns those that were taken, as they are.

    Spark's way is that of all epochs of its query; who makes the micro-batches is drawn for each query.
    """
    chance, taken = random.Random(str(seed)), list[str]()
    by_arrow = [each for each in ways if each != SPARK]
    work_by_arrow, work_by_spark = StreamQuery._work_by_arrow, StreamQuery._work
    asks_sources = cast("Callable[[StreamQuery], bool]", cast("property", StreamQuery._asks_sources).fget)

    def asks(query: StreamQuery) -> bool:
        return chance.choice(ways) != SPARK and asks_sources(query)

    def by_sources(query: StreamQuery, batch_id: int) -> None:
        taken.append(chance.choice(by_arrow))
        work_by_arrow(query, batch_id)

    def by_spark(query: StreamQuery, batch: DataFrame, batch_id: int) -> None:
        taken.append(SPARK)
        work_by_spark(query, batch, batch_id)

    def on_pieces(
        stages: Sequence[Stage], scans: Sequence[AnyScan], pieces: Sequence[Piece], *, streams: bool
    ) -> DriverWork:
        if taken[-1] == TASKS:
            raise TooManyRowsError
        few = chance.choice([0, driver_work.BYTES_MAX])
        with pytest.MonkeyPatch.context() as limits:
            limits.setattr(driver_work, "BYTES_MAX", few)
            return work_on(stages, scans, pieces, streams=streams or few == 0)

    patch.setattr(StreamQuery, "_asks_sources", property(asks))
    patch.setattr(StreamQuery, "_work_by_arrow", by_sources)
    patch.setattr(StreamQuery, "_work", by_spark)
    patch.setattr(epoch_plans, "work_on", on_pieces)
    return taken


def readers(stream: StreamUnderTest) -> list[ReadBy | None]:
    """Who read each epoch that had rows."""
    every = [epoch.manifest.statistics for epoch in stream.epochs]
    return [each.read_by for each in every if each.rows_in]
