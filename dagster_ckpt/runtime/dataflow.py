"""The user's DataFrames with our tasks behind them."""

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from dagster_ckpt.operators.inputs import keys_of_inputs
from dagster_ckpt.protocol.manifest import Pipeline
from dagster_ckpt.runtime.ack_rows import ACK_ROW_OF_SPARK
from dagster_ckpt.runtime.layout import HASH, INPUT, columns_of_input
from dagster_ckpt.runtime.task import TaskSetup, epoch_task


def words_of_epochs(inputs: Sequence[DataFrame], pipeline: Pipeline, setup: TaskSetup) -> DataFrame:
    """A streaming DataFrame with one row for each shard's word; collecting a micro-batch of it does the epoch's work.

    The tasks are part of the streaming plan: so Spark plans a micro-batch once, and reads only the columns they need.
    """
    rows = [
        frame.select([_column(name) for name in source.schema.names])
        for frame, source in zip(inputs, pipeline.inputs, strict=True)
    ]
    if setup.layout.tasks is None:
        [unkeyed] = rows
        return unkeyed.mapInArrow(epoch_task(setup), ACK_ROW_OF_SPARK)
    hashed = [
        frame.withColumn(HASH, F.xxhash64(*map(_column, keys)))
        for frame, keys in zip(rows, keys_of_inputs(pipeline), strict=True)
    ]
    together = hashed[0] if len(hashed) == 1 else _union(rows, hashed)
    shuffled = together.repartitionById(setup.layout.tasks, F.expr(setup.layout.partition_in_sql()))
    return shuffled.mapInArrow(epoch_task(setup), ACK_ROW_OF_SPARK)


def words_of_own_epoch(session: SparkSession, setup: TaskSetup) -> DataFrame:
    """A DataFrame with the words of an epoch without rows, which is the driver's own: each task works its shards."""
    tasks = setup.layout.tasks
    assert tasks is not None, "nothing waits in an unkeyed stream"
    return session.range(0, tasks, 1, tasks).mapInArrow(epoch_task(setup, rowless=True), ACK_ROW_OF_SPARK)


def union_of(inputs: Sequence[DataFrame]) -> DataFrame:
    """Several inputs in one plan, in the order in which `words_of_epochs` has them: its sources are the query's."""
    return _union(inputs, [frame.withColumn(HASH, F.lit(0)) for frame in inputs])


def _union(rows: Sequence[DataFrame], hashed: Sequence[DataFrame]) -> DataFrame:
    """The rows of all inputs: which one, the hash, and a struct for each input, null but for its own."""
    types = [frame.schema for frame in rows]
    sides = []
    for number, frame in enumerate(hashed):
        columns = [F.lit(number).cast("int").alias(INPUT), F.col(HASH)]
        for other, type_ in enumerate(types):
            own = F.struct(*(_column(name) for name in type_.names)) if other == number else F.lit(None).cast(type_)
            columns.append(own.alias(columns_of_input(other)))
        sides.append(frame.select(columns))
    return reduce(DataFrame.union, sides)


def _column(name: str) -> Column:
    """The column of exactly this name, dots and all."""
    return F.col(f"`{name.replace('`', '``')}`")
