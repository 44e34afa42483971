"""Files of Nexmark's events in a folder for each table, and the tables by their names in a session."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from benchmarks.inputs import put_file
from benchmarks.nexmark.events import SCHEMAS, Events
from benchmarks.nexmark.queries import prepare
from dagster_ckpt.runtime.spark.arrow_schemas import to_spark_schema

_TIME = "date_time"


class EventInbox:
    """A folder with one for each table, which files are put into, one of each a trigger."""

    def __init__(self, folder: Path, tables: Sequence[str], events: Events) -> None:
        for table in tables:
            folder.joinpath(table).mkdir(parents=True)
        self.folder = folder
        self.tables = tables
        self._events = events
        self._next, self._files = 0, 0

    def put(self, events: int, a_file: int) -> int:
        """So many more events, `a_file` of them in a file; how many files that were."""
        before, end = self._files, self._next + events
        while self._next < end:
            count = min(a_file, end - self._next)
            rows = self._events.rows(self._next, count)
            for table in self.tables:
                put_file(self.folder / table, self._files, rows[table])
            self._next += count
            self._files += 1
        return self._files - before

    fill = put

    def stream(self, session: SparkSession, delay: str | None = None) -> Mapping[str, DataFrame]:
        """The tables by name, a file of each a trigger, and what else queries call. `delay` is that of a watermark."""
        prepare(session)
        stream_tables(session, self.folder, self.tables, delay)
        return {table: session.table(table) for table in self.tables}

    def batch(self, session: SparkSession) -> None:
        """Give the tables their names, with the rows of all files that are there, and the session what queries call."""
        prepare(session)
        for table in self.tables:
            rows = session.read.schema(to_spark_schema(SCHEMAS[table])).parquet(str(self.folder / table))
            rows.createOrReplaceTempView(table)


def stream_tables(session: SparkSession, folder: Path, tables: Sequence[str], delay: str | None = None) -> DataFrame:
    """Give the tables their names as streams, a file of each a trigger. Returns one of them.

    `delay` is that of a watermark.
    """
    for table in tables:
        reader = session.readStream.schema(to_spark_schema(SCHEMAS[table])).option("maxFilesPerTrigger", 1)
        rows = reader.parquet(str(folder / table))
        (rows if delay is None else rows.withWatermark(_TIME, delay)).createOrReplaceTempView(table)
    return session.table(tables[0])
