"""What no stream of ours can do without: Spark's micro-batch, its shuffle and its Python tasks, and no work in them."""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from time import perf_counter

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.session import read_inbox
from dagster_ckpt.runtime.session import open_session


class Nothing:
    """A side that brings all rows to two tasks by their key's hash and takes them in, under our own settings."""

    def __init__(self, spark: SparkSession, inbox: Path, checkpoint: Path) -> None:
        rows = read_inbox(open_session(spark), inbox).withColumn("hash", F.xxhash64("k"))
        shuffled = rows.repartitionById(2, F.expr("cast(shiftrightunsigned(hash, 63) as int)"))
        self._frame = shuffled.mapInArrow(_consume, "word binary")
        self._checkpoint = checkpoint

    def work(self) -> list[float]:
        """Seconds from the end of one trigger's job to the next, as ours are counted."""
        ends = [perf_counter()]

        def collect(frame: DataFrame, _: int) -> None:
            frame.collect()
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
