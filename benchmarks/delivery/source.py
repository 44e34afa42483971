"""From Kafka to a committed epoch, against Spark's own query on the same topic into a sink that discards all rows."""

from pathlib import Path

from benchmarks.delivery.topic import CONNECTOR, Topic
from benchmarks.ours import Ours
from benchmarks.report.timing import Timing
from benchmarks.rivals import SparkQuery
from benchmarks.session import rivals_session, start
from dagster_ckpt import Stream
from dagster_ckpt.runtime.spark.session import open_session

PARTITIONS = 2


def raced(broker: str, folder: Path, rows: int, batches: int, rounds: int) -> tuple[Timing, Timing]:
    """Ours, an append-only stream, and Spark's own, in turns; `rows` a trigger.

    Raises RuntimeError where a side has not read all rows.
    """
    spark, topic = start(folder, CONNECTOR), Topic(broker, "raced", PARTITIONS)
    ours = Ours(Stream(topic.read(open_session(spark), rows)), folder / "store")
    theirs = SparkQuery(topic.read(rivals_session(spark), rows), folder / "checkpoint", "append")
    mine, sparks, first = list[list[float]](), list[list[float]](), 0
    for turn in range(rounds + 1):
        topic.put(first, rows * (batches + 1))
        first += rows * (batches + 1)
        for side, seconds in ((ours, mine), (theirs, sparks)):
            worked = side.work()
            if len(worked) != batches + 1:
                raise RuntimeError(
                    f"not one trigger a batch. side={side}, triggers={len(worked)}, batches={batches + 1}"
                )
            if turn:  # the first round warms up, and so does each turn's first trigger
                seconds.append(worked[1:])
    found = ours.results().num_rows
    spark.stop()
    if found != first:
        raise RuntimeError(f"not all rows were committed. rows={found} of {first}")
    return Timing(rows, mine), Timing(rows, sparks)
