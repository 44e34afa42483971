"""The user's DataFrame with our tasks behind it."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from dagster_ckpt.protocol.manifest import Pipeline
from dagster_ckpt.runtime.ack_rows import ACK_ROW_OF_SPARK
from dagster_ckpt.runtime.layout import HASH
from dagster_ckpt.runtime.task import TaskSetup, epoch_task


def words_of_epochs(frame: DataFrame, pipeline: Pipeline, setup: TaskSetup) -> DataFrame:
    """A streaming DataFrame with one row for each shard's word; collecting a micro-batch of it does the epoch's work.

    The tasks are part of the streaming plan: so Spark plans a micro-batch once, and reads only the columns they need.
    """
    rows = frame.select([_column(name) for name in pipeline.inputs[0].schema.names])
    if setup.layout.tasks is not None:
        hashed = rows.withColumn(HASH, F.xxhash64(*map(_column, pipeline.keys)))
        rows = hashed.repartitionById(setup.layout.tasks, F.expr(setup.layout.partition_in_sql()))
    return rows.mapInArrow(epoch_task(setup), ACK_ROW_OF_SPARK)


def _column(name: str) -> Column:
    """The column of exactly this name, dots and all."""
    return F.col(f"`{name.replace('`', '``')}`")
