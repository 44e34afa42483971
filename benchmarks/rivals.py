"""Spark's own ways, in a query whose output is thrown away: nobody pays for a sink."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter

Totals = Callable[[DataFrame], DataFrame]
"""A streaming DataFrame of the inbox in, one of `COLUMNS` out, in update mode."""


class SparkQuery:
    """A side whose state is Spark's, in a checkpoint folder of its own. `table` is made in `rivals_session`."""

    def __init__(self, table: DataFrame, checkpoint: Path, output_mode: str = "update") -> None:
        self._table = table
        self._checkpoint = checkpoint
        self._output_mode = output_mode

    def work(self) -> list[float]:
        """Seconds as Spark reports them: each trigger whole, without what may lie between two."""
        return self._run(self._table.writeStream.format("noop"))

    def results(self) -> pa.Table:
        batches: list[pa.Table] = []
        self._run(self._table.writeStream.foreachBatch(lambda frame, _: batches.append(frame.toArrow())))
        return pa.concat_tables(batches)

    def _run(self, writer: DataStreamWriter) -> list[float]:
        writer = writer.outputMode(self._output_mode).option("checkpointLocation", str(self._checkpoint))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        worked = [progress for progress in query.recentProgress if progress.numInputRows]
        return [progress.durationMs["triggerExecution"] / 1000 for progress in worked]


def native(frame: DataFrame) -> DataFrame:
    """Spark's streaming aggregation, wholly in the JVM."""
    return frame.groupBy("k").agg(F.count("*").alias("rows"), F.sum("v").alias("total"), F.max("w").alias("most"))
