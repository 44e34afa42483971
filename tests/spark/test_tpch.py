"""TPC-H's queries as streams: after every epoch the table is what Spark gives in batch for the tables as they are."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from benchmarks.tpch.history import arrivals, history
from benchmarks.tpch.inbox import changing_table
from benchmarks.tpch.queries import QUERIES, tables_of
from dagster_ckpt.runtime.declared.stream import Stream
from dagster_ckpt.runtime.plans.compiler import stream_of_sql
from dagster_ckpt.runtime.spark.arrow_schemas import to_spark_schema
from tests.spark.fingerprints import plan_twice
from tests.spark.input_files import drop
from tests.spark.rows_as_bags import bag
from tests.spark.streams import StreamUnderTest

OPENED = 1
"""The epoch in which a stream is opened has no rows."""
TINY, SMALL = 0.0005, 0.01
EACH_KIND = ("13", "22")
"""Queries that together have an outer and an anti join, a subquery of one value, and an aggregate of an aggregate."""


@dataclass(frozen=True)
class World:
    """Of each table a folder with a file for each epoch, and the folders with its rows behind each."""

    folder: Path
    scale: float
    schemas: Mapping[str, pa.Schema]
    epochs: int
    changes: bool

    @classmethod
    def of_changes(cls, folder: Path, scale: float, epochs: int, seed: int) -> "World":
        told = history(scale, epochs, seed)
        for name, states in told.states.items():
            for epoch in range(epochs):
                drop(folder / name, epoch, told.changes[name][epoch])
                drop(folder / f"{name}-{epoch}", 0, states[epoch])
        return cls(folder, scale, {name: each[0].schema for name, each in told.changes.items()}, epochs, changes=True)

    @classmethod
    def of_arrivals(cls, folder: Path, scale: float, epochs: int, seed: int) -> "World":
        found = arrivals(scale, epochs, seed)
        for name, arrived in found.items():
            for epoch in range(epochs):
                drop(folder / name, epoch, arrived[epoch])
                for file in range(epoch + 1):
                    drop(folder / f"{name}-{epoch}", file, arrived[file])
        return cls(folder, scale, {name: each[0].schema for name, each in found.items()}, epochs, changes=False)

    def tables(self, session: SparkSession, query: str) -> Mapping[str, Stream | DataFrame]:
        """The tables of a query as they stream."""
        return {name: self._table(session, name) for name in tables_of(query)}

    def _table(self, session: SparkSession, name: str) -> Stream | DataFrame:
        if self.changes:
            return changing_table(session, name, self.folder / name, self.schemas[name])
        reader = session.readStream.schema(to_spark_schema(self.schemas[name])).option("maxFilesPerTrigger", 1)
        return reader.parquet(str(self.folder / name))

    def in_batch(self, spark: SparkSession, query: str, epoch: int) -> DataFrame:
        """What the query gives for the tables as they are behind an epoch."""
        for name in tables_of(query):
            spark.read.parquet(str(self.folder / f"{name}-{epoch}")).createOrReplaceTempView(name)
        return spark.sql(query)


Worlds = Callable[[str], World]
WORLDS: Mapping[str, Callable[[Path], World]] = {
    "a few changes": lambda folder: World.of_changes(folder, TINY, 3, seed=1),
    "changes": lambda folder: World.of_changes(folder, SMALL, 3, seed=2),
    "changes in more epochs": lambda folder: World.of_changes(folder, TINY, 5, seed=3),
    "all in one epoch": lambda folder: World.of_changes(folder, SMALL, 1, seed=4),
    "rows that only come": lambda folder: World.of_arrivals(folder, SMALL, 3, seed=5),
}


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> Worlds:
    """The worlds, each made when it is first asked for."""
    made: dict[str, World] = {}

    def world(name: str) -> World:
        if name not in made:
            made[name] = WORLDS[name](tmp_path_factory.mktemp("tpch"))
        return made[name]

    return world


@pytest.fixture
def stream(spark_of_all: SparkSession, tmp_path: Path) -> StreamUnderTest:
    return StreamUnderTest(spark_of_all, tmp_path, shards=2)


def check(stream: StreamUnderTest, spark: SparkSession, world: World, name: str) -> bool:
    """After every epoch the stream's table has the columns and the rows of the batch. Returns whether it ever had any.

    A row of nulls is none: a sum without a group always has a row.
    """
    query = QUERIES[name]

    def plan(session: SparkSession) -> Stream:
        return plan_twice(session, lambda: stream_of_sql(session, query, world.tables(session, query)))

    stream.run(plan)
    assert len(stream.epochs) == world.epochs
    any_rows = False
    for epoch in range(world.epochs):
        table, batch = stream.table(OPENED + epoch + 1), world.in_batch(spark, query, epoch)
        assert table.column_names == batch.columns
        rows = batch.collect()
        wanted, got = bag(rows), bag(row.values() for row in table.to_pylist())
        assert got == wanted, f"epoch={epoch}, more={got - wanted}, missing={wanted - got}"
        any_rows = any_rows or any(value is not None for row in rows for value in row)
    return any_rows


@pytest.mark.queries
@pytest.mark.parametrize("name", EACH_KIND)
def test_the_table_is_what_the_query_gives_in_batch(
    stream: StreamUnderTest, spark: SparkSession, worlds: Worlds, name: str
) -> None:
    assert check(stream, spark, worlds("a few changes"), name)


@pytest.mark.queries
@pytest.mark.parametrize("world", list(WORLDS)[1:])
@pytest.mark.parametrize("name", QUERIES)
def test_every_query_is_what_it_gives_in_batch(
    stream: StreamUnderTest, spark: SparkSession, worlds: Worlds, name: str, world: str
) -> None:
    assert check(stream, spark, worlds(world), name) or worlds(world).scale < SMALL


@pytest.mark.queries
def test_every_query_can_be_kept_up_to_date(
    spark: SparkSession, worlds: Worlds, capfd: pytest.CaptureFixture[str]
) -> None:
    for name, query in QUERIES.items():
        tables = worlds("a few changes").tables(spark, query)
        steps = [each.step.name for each in stream_of_sql(spark, query, tables).steps if each.step is not None]
        assert steps.count("changes_from") == len(tables), f"{name}: each table is read once. steps={steps}"
        assert len(steps) > len(tables), name
    assert "ERROR" not in capfd.readouterr().err, "PySpark logs errors that are handled"


def test_a_query_that_is_compiled_again_fits_its_state(spark: SparkSession, worlds: Worlds) -> None:
    query = QUERIES["21"]
    plan_twice(spark, lambda: stream_of_sql(spark, query, worlds("a few changes").tables(spark, query)))
