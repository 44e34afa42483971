"""What no stream of ours can do without: Spark's micro-batch, its shuffle and its Python tasks, and no work in them."""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from time import perf_counter

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.inputs import ARROW_SCHEMA, KEY
from benchmarks.ours import SHARDS
from benchmarks.session import CORES, read_inbox
from dagster_ckpt.runtime.catalyst.physical_plan import rows_of
from dagster_ckpt.runtime.driver.stream_job import JobOptions
from dagster_ckpt.runtime.spark.session import open_session
from dagster_ckpt.runtime.spark.wide_rows import limit_batches
from dagster_ckpt.runtime.task.shard_assignment import HASH, ShardAssignment
from dagster_ckpt.state.memory_budget import MemoryBudget


class Nothing:
    """A side that shuffles all rows as ours does and takes them in, under the very settings that a stream has."""

    def __init__(self, spark: SparkSession, inbox: Path, checkpoint: Path) -> None:
        self.session = open_session(spark)
        budget = MemoryBudget(JobOptions().engine.memory_limit_bytes)
        limit_batches(self.session, [ARROW_SCHEMA], [ARROW_SCHEMA.field(KEY).type], budget.chunk_bytes)
        assignment = ShardAssignment.keyed(SHARDS, CORES)
        assert assignment.tasks is not None, "what is keyed is shuffled"
        rows = read_inbox(self.session, inbox).withColumn(HASH, F.xxhash64(KEY))
        shuffled = rows.repartitionById(assignment.tasks, F.expr(assignment.partition_in_sql()))
        self._frame = shuffled.mapInArrow(_consume, "word binary")
        self._checkpoint = checkpoint

    def work(self) -> list[float]:
        """Seconds from the end of one trigger's job to the next, as ours are counted."""
        ends = [perf_counter()]

        def collect(frame: DataFrame, _: int) -> None:
            rows_of(frame).count()
            ends.append(perf_counter())

        writer = self._frame.writeStream.foreachBatch(collect).option("checkpointLocation", str(self._checkpoint))
        writer.trigger(availableNow=True).start().awaitTermination()
        return [after - before for before, after in pairwise(ends)]

    def results(self) -> None:
        self.work()


def _consume(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in batches:
        pass
    yield from ()
