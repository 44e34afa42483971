"""The user's DataFrames, followed by our tasks."""

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from dagster_ckpt.lsm.key_hash import SEED
from dagster_ckpt.operators.shared.inputs import keys_of_inputs
from dagster_ckpt.protocol.manifest.manifest import Pipeline
from dagster_ckpt.runtime.task.ack_rows import ACK_ROW_OF_SPARK
from dagster_ckpt.runtime.task.epoch_task import TaskSetup, epoch_task
from dagster_ckpt.runtime.task.shard_assignment import HASH, INPUT, columns_of_input


def shard_replies(inputs: Sequence[DataFrame], pipeline: Pipeline, setup: TaskSetup) -> DataFrame:
    """A streaming DataFrame with one row for each shard's reply; collecting a micro-batch of it does the epoch's work.

    The tasks are part of the streaming plan, so Spark plans a micro-batch once and reads only the columns they need.
    """
    names = [source.schema.names for source in pipeline.inputs]
    rows = [_numbered(frame, its) for frame, its in zip(inputs, names, strict=True)]
    if setup.assignment.tasks is None:
        [unkeyed], [unkeyed_names] = rows, names
        return unkeyed.mapInArrow(epoch_task(setup, unkeyed_names), ACK_ROW_OF_SPARK)
    hashed = []
    for frame, its, keys in zip(rows, names, keys_of_inputs(pipeline), strict=True):
        numbered = dict(zip(its, frame.columns, strict=True))
        hashed.append(frame.withColumn(HASH, _hash_of([numbered[key] for key in keys])))
    if len(hashed) == 1:
        together, columns = hashed[0], [*names[0], HASH]
    else:
        together = _union(rows, hashed)
        columns = together.columns
    shuffled = together.repartitionById(setup.assignment.tasks, F.expr(setup.assignment.partition_in_sql()))
    return shuffled.mapInArrow(epoch_task(setup, columns), ACK_ROW_OF_SPARK)


def shard_replies_of_own_epoch(session: SparkSession, setup: TaskSetup) -> DataFrame:
    """A DataFrame with the replies of an epoch without input, which the driver starts by itself."""
    tasks = setup.assignment.tasks
    assert tasks is not None, "nothing waits in an unkeyed stream"
    return session.range(0, tasks, 1, tasks).mapInArrow(epoch_task(setup, None), ACK_ROW_OF_SPARK)


def union_of(inputs: Sequence[DataFrame]) -> DataFrame:
    """Several inputs in one plan, in the order of `shard_replies`: it has the query's sources."""
    rows = [_numbered(frame, frame.columns) for frame in inputs]
    return _union(rows, [frame.withColumn(HASH, F.lit(0)) for frame in rows])


def _union(rows: Sequence[DataFrame], hashed: Sequence[DataFrame]) -> DataFrame:
    """The rows of all inputs: the input's number, the hash, and a struct per input, null in rows of the others."""
    types = [frame.schema for frame in rows]
    sides = []
    for number, frame in enumerate(hashed):
        columns = [F.lit(number).cast("int").alias(INPUT), F.col(HASH)]
        for other, type_ in enumerate(types):
            own = F.struct(*type_.names) if other == number else F.lit(None).cast(type_)
            columns.append(own.alias(columns_of_input(other)))
        sides.append(frame.select(columns))
    return reduce(DataFrame.union, sides)


def _hash_of(keys: Sequence[str]) -> Column:
    """The key's hash. Without keys it is the seed, as `key_hashes` has it: Spark's function needs a column."""
    return F.xxhash64(*keys) if keys else F.lit(SEED).cast("long")


def _numbered(frame: DataFrame, names: Sequence[str]) -> DataFrame:
    """These columns, renamed by number: Spark reads a dot in a name as a field, a backtick as a quote."""
    there = frame.columns
    by_number = [f"_column_{number}" for number in range(len(there))]
    numbered = dict(zip(reversed(there), reversed(by_number), strict=True))  # the first of a name
    wanted = [numbered[name] for name in names]
    renamed = frame.toDF(*by_number)
    return renamed if wanted == by_number else renamed.select(wanted)
