"""Files of changes of TPC-H's tables in a folder for each, and the tables in a session: as streams, and as they are."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from benchmarks.inputs import put_file
from benchmarks.tpch.changing import Change, ChangingTable
from benchmarks.tpch.history import OP, VERSION, changed
from benchmarks.tpch.tables import KEYS, tables
from dagster_ckpt import Stream, changes_from
from dagster_ckpt.runtime.spark.arrow_schemas import to_spark_schema

LINE_ITEMS = 6_000_000
"""So many line items has scale 1, about."""


class TradeInbox:
    """First each table's rows come, then changes of them. All counts are of line items: other tables have their share.

    A trigger takes a file of each table, which may be empty.
    """

    def __init__(self, folder: Path, names: Sequence[str], line_items: int, seed: int = 1) -> None:
        self._folder, self._line_items = folder, line_items
        self._chance = np.random.default_rng(seed)
        made = tables(line_items / LINE_ITEMS, seed)
        self._tables = {name: ChangingTable(made[name], KEYS[name]) for name in names}
        self._files = 0
        for name in names:
            folder.joinpath(name).mkdir(parents=True)

    def fill(self, line_items: int, a_file: int) -> int:
        """All rows, in the order of their keys; how many files that is. `line_items` is that of the inbox."""
        files = -(-line_items // a_file)
        for file in range(files):
            self._put({name: table.insert(file, files) for name, table in self._tables.items()})
        return files

    def put(self, line_items: int, a_file: int) -> int:
        """Changes of so many line items; how many files that is. A key changes at most once in a file."""
        files = -(-line_items // a_file)
        for _ in range(files):
            share = a_file / self._line_items
            self._put({name: table.change(share, self._chance) for name, table in self._tables.items()})
        return files

    def stream(self, session: SparkSession, delay: str | None = None) -> Mapping[str, Stream | DataFrame]:
        """The tables by name, a file of each a trigger. They have no event time that a watermark could follow."""
        return {
            name: changing_table(session, name, self._folder / name, _changes_of(table.rows.slice(0, 0), "c", 0).schema)
            for name, table in self._tables.items()
        }

    def batch(self, session: SparkSession) -> None:
        """Give the tables their names, with the rows that they have after all files."""
        for name, table in self._tables.items():
            path = self._folder / f"{name}-now.parquet"
            pq.write_table(table.now(), path)
            session.read.parquet(str(path)).createOrReplaceTempView(name)

    def _put(self, changes: Mapping[str, Sequence[Change]]) -> None:
        for name, parts in changes.items():
            rows = pa.concat_tables([_changes_of(rows, op, self._files) for rows, op in parts])
            put_file(self._folder / name, self._files, rows)
        self._files += 1


def _changes_of(rows: pa.Table, op: str, file: int) -> pa.Table:
    return changed(rows, np.full(len(rows), op), file)


def changing_table(session: SparkSession, name: str, folder: Path, schema: pa.Schema) -> Stream:
    """A table of TPC-H whose files have changes of this schema, one of them a trigger."""
    reader = session.readStream.schema(to_spark_schema(schema)).option("maxFilesPerTrigger", 1)
    changes = reader.parquet(str(folder))
    return changes_from(changes, "op-column", op=OP, key=KEYS[name], sequence=VERSION, exclude=VERSION)
