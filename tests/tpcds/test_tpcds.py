"""TPC-DS: after every epoch the table of each query has the rows of the batch."""

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.runtime.declared.step_parts import Upstream
from dagster_ckpt.runtime.declared.stream import Stream
from dagster_ckpt.runtime.plans.compiler import stream_of_sql
from dagster_ckpt.runtime.spark.arrow_schemas import to_spark_schema
from tests.spark.fingerprints import PLANS_ALONE, plan_twice
from tests.spark.input_files import drop
from tests.spark.local_spark import local_spark
from tests.spark.rows_as_bags import bag, nine_digits
from tests.spark.streams import StreamUnderTest
from tests.tpcds.rows import EPOCHS, World
from tests.tpcds.suite import Suite

[JAR] = Path(os.environ["DAGSTER_CKPT_TEST_JARS"], "queries").glob("spark-sql_*-tests.jar")
SUITE = Suite(JAR)
OPENED = 1
"""The epoch in which a stream is opened has no rows."""
ONE_NAME_TWICE = ("q14b", "q39a", "q39b", "q64")
"""Queries whose result has duplicate column names, which are refused. They run with a list of column aliases."""
LEFT_OPEN = {"q51": "a running maximum by a date that is null in several rows, whose order SQL leaves open"}
"""Queries whose results depend on what SQL leaves open, for these rows."""


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with local_spark() as spark:
        yield spark


@pytest.mark.parametrize("name", [name for name in SUITE.queries() if name not in LEFT_OPEN])
def test_the_table_is_what_the_query_gives_in_batch(spark: SparkSession, tmp_path: Path, name: str) -> None:
    query = SUITE.queries()[name]
    world = World(query, {table: SUITE.tables()[table] for table in SUITE.tables_of(query)}, name)
    if name in ONE_NAME_TWICE:
        with pytest.raises(InvalidPipelineError, match="could not tell these columns apart"):
            stream_of_sql(spark, query, streams(spark, tmp_path, world))
        query = _with_aliases(spark, world, query)

    def plan(session: SparkSession) -> Stream:
        return plan_twice(session, lambda: stream_of_sql(session, query, streams(session, tmp_path, world)))

    if PLANS_ALONE:
        plan(spark)
        return
    expected = [in_batch(spark, world, query, epoch) for epoch in range(EPOCHS)]
    stream = StreamUnderTest(spark, tmp_path, shards=2)
    stream.run(plan)
    for epoch, rows in enumerate(expected):
        found = bag((row.values() for row in stream.table(OPENED + epoch + 1).to_pylist()), nine_digits)
        assert found == rows, f"epoch={epoch}, more={found - rows}, missing={rows - found}"


def in_batch(spark: SparkSession, world: World, query: str, epoch: int) -> Counter[object]:
    """What the query gives for the tables as they are behind an epoch."""
    create_views(spark, world, epoch)
    return bag(spark.sql(query).collect(), nine_digits)


def create_views(spark: SparkSession, world: World, epoch: int) -> None:
    """Give the tables their names, with the rows that they have behind an epoch."""
    for name, table in world.tables.items():
        rows = table.states[epoch]
        spark.createDataFrame(rows, to_spark_schema(rows.schema)).createOrReplaceTempView(name)


def streams(session: SparkSession, root: Path, world: World) -> Mapping[str, Stream]:
    """The tables as streams, a file of changes of each in each epoch."""
    found = {}
    for name, table in world.tables.items():
        for number, changes in enumerate(table.changes):
            if not (root / name / f"{number:05d}.parquet").exists():
                drop(root / name, number, changes)
        reader = session.readStream.schema(to_spark_schema(table.changes[0].schema)).option("maxFilesPerTrigger", 1)
        found[name] = Stream(reader.parquet(str(root / name)), upstream=Upstream(name, None, changes=True))
    return found


def _with_aliases(spark: SparkSession, world: World, query: str) -> str:
    """The query with an alias for each of its columns."""
    create_views(spark, world, 0)
    names = ", ".join(f"c{number}" for number in range(len(spark.sql(query).columns)))
    return f"SELECT * FROM ({query}) AS named ({names})"
