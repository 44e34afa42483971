"""Sources declared by name, so that a test can put its own rows in their place."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from pyspark.sql import DataFrame, SparkSession

Reader = Callable[[SparkSession], DataFrame]


@runtime_checkable
class ReadsDeclared(Protocol):
    """A session that replaces the readers of declared sources."""

    def read_declared(self, name: str, reader: Reader) -> DataFrame: ...


@dataclass(frozen=True)
class DeclaredSource:
    """A source with a name. Call it with the asset's session to read it."""

    name: str
    reader: Reader

    def __call__(self, spark: SparkSession) -> DataFrame:
        if isinstance(spark, ReadsDeclared):
            return spark.read_declared(self.name, self.reader)
        return self.reader(spark)


def source(name: str, reader: Reader) -> DeclaredSource:
    """Declare a named source for streaming assets.

        departures = source("departures", lambda spark: spark.readStream.schema(SCHEMA).parquet("data/departures"))

    An asset calls it with its session: `Stream(departures(spark))`. `testing.run_batches` replaces it, by name, with a
    test's batches.
    """
    return DeclaredSource(name, reader)
