"""Tables whose rows come, change and go, read by Spark: as streams, and in batch as they are after an epoch."""

import gc
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from dagster_ckpt.runtime.declared.step_parts import Upstream
from dagster_ckpt.runtime.declared.stream import Stream
from dagster_ckpt.runtime.plans.compiler import stream_of_sql
from dagster_ckpt.runtime.plans.stand_ins import stand_ins_of
from dagster_ckpt.runtime.spark.arrow_schemas import to_spark_schema
from tests.spark.fingerprints import plan_twice
from tests.spark.input_files import drop
from tests.spark.rows_as_bags import bag
from tests.spark.streams import StreamUnderTest
from tests.worlds.queries.tables import Changing
from tests.worlds.queries.texts import STATIC, TWICE

Number = Callable[[float], object]
OPENED = 1
"""The epoch in which a stream is opened has no rows."""


def after_each_epoch(
    spark: SparkSession, root: Path, world: Mapping[str, Changing], query: str, number: Number = float
) -> list[Counter[object]]:
    """The rows of the query's table after each epoch that has input. `root` is an empty folder."""
    stream = StreamUnderTest(spark, root)

    def plan(session: SparkSession) -> Stream:
        add_functions(session)
        with stand_ins_of(session):
            return plan_twice(session, lambda: stream_of_sql(session, query, read(session, root, world)))

    try:
        stream.run(plan)
    finally:
        gc.collect()  # plans in the JVM live as long as what names them in Python, and this names thousands
    epochs = range(OPENED + 1, OPENED + len(stream.epochs) + 1)
    return [bag((row.values() for row in stream.table(epoch).to_pylist()), number) for epoch in epochs]


def in_batch(
    spark: SparkSession, world: Mapping[str, Changing], query: str, epoch: int, number: Number = float
) -> Counter[object]:
    """What Spark gives of the rows that are there after so many epochs."""
    add_functions(spark)
    for name, table in world.items():
        spark.createDataFrame(table.rows(epoch), to_spark_schema(table.schema)).createOrReplaceTempView(name)
    return bag(spark.sql(query).collect(), number)


def add_functions(session: SparkSession) -> None:
    """Add what queries have beside their tables."""
    session.udf.register(TWICE, lambda number: None if number is None else 2 * number, "long")
    session.range(3).withColumnRenamed("id", "n").createOrReplaceTempView(STATIC)


def read(session: SparkSession, root: Path, world: Mapping[str, Changing]) -> Mapping[str, Stream]:
    """The tables as streams, a file of each in each epoch."""
    found = {}
    for name, table in world.items():
        folder = root / name
        if not folder.exists():
            folder.mkdir()
            for number, rows in enumerate(table.files()):
                drop(folder, number, rows)
        schema = to_spark_schema(table.files()[0].schema)
        frame = session.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder))
        upstream = Upstream(name, table.key, changes=True) if table.changes else None
        found[name] = Stream(frame, upstream=upstream)
    return found
