"""Sources declared by name, so that a test can put its own rows in their place."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from pyspark.sql import DataFrame, SparkSession

Reader = Callable[[SparkSession], DataFrame]


@runtime_checkable
class ReadsDeclared(Protocol):
    """A session that reads declared sources in a way of its own."""

    def read_declared(self, name: str, reader: Reader) -> DataFrame: ...


@dataclass(frozen=True)
class DeclaredSource:
    """A source with a name. Called with the asset's session it is what its reader reads."""

    name: str
    reader: Reader

    def __call__(self, spark: SparkSession) -> DataFrame:
        if isinstance(spark, ReadsDeclared):
            return spark.read_declared(self.name, self.reader)
        return self.reader(spark)


def source(name: str, reader: Reader) -> DeclaredSource:
    """Declare a source of streaming assets by a name.

        departures = source("departures", lambda spark: spark.readStream.schema(SCHEMA).parquet("data/departures"))

    An asset reads it by calling it with its session: `Stream(departures(spark))`. `testing.run_batches` puts a test's
    batches in its place, by its name.
    """
    return DeclaredSource(name, reader)
