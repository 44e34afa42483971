"""The queries of Nexmark as streams: after every epoch the table is what Spark gives in batch, however rows arrive."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from benchmarks.nexmark.events import TABLES, Events
from benchmarks.nexmark.inbox import stream_tables
from benchmarks.nexmark.queries import OF_PROCESSING_TIME, QUERIES, prepare, tables_of
from benchmarks.plan import NEXMARK
from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.runtime.declared.stream import Stream
from dagster_ckpt.runtime.plans.compiler import stream_of_sql
from tests.spark.fingerprints import plan_twice
from tests.spark.input_files import drop
from tests.spark.rows_as_bags import bag
from tests.spark.streams import StreamUnderTest

EVENTS = 600
EPOCHS = 3
OPENED = 1
"""The epoch in which a stream is opened has no rows."""
EACH_KIND = ("q13", "q15", "q6", "q11", "q5")
"""Queries that together have every kind of node: windows, joins, first rows, a partition, sessions, a static table."""

ROW_BY_ROW = ("q0", "q1", "q2", "q10", "q13", "q14", "q21", "q22")
"""Queries that need no state."""

Cut = Callable[[str, int], npt.NDArray[np.int64]]
"""The epoch of each row of a table with so many."""
CUTS: Mapping[str, Cut] = {
    "in order": lambda _, rows: np.arange(rows) * EPOCHS // rows,
    "in any order": lambda table, rows: np.random.default_rng(len(table)).integers(0, EPOCHS, rows),
    "bids first": lambda table, rows: np.full(rows, EPOCHS - 1 - TABLES.index(table)),
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """Of each cut a folder with one for each table, which has a file for each epoch."""
    made = {cut: tmp_path_factory.mktemp("nexmark") for cut in CUTS}
    for table, rows in Events(interval_us=500_000).rows(0, EVENTS).items():
        for cut, epochs_of in CUTS.items():
            epochs = epochs_of(table, len(rows))
            for epoch in range(EPOCHS):
                drop(made[cut] / table, epoch, rows.take(pa.array(np.flatnonzero(epochs == epoch))))
    return made


def streaming(session: SparkSession, folder: Path, tables: Sequence[str], delay: str | None = None) -> DataFrame:
    """Give the session what queries read and call. Returns a table of it. `delay` is that of a watermark."""
    prepare(session)
    return stream_tables(session, folder, tables, delay)


def check(stream: StreamUnderTest, spark: SparkSession, folder: Path, name: str, delay: str | None = None) -> None:
    """After every epoch the stream's table has the rows of the batch."""
    query, tables = QUERIES[name], tables_of(name)

    def plan(session: SparkSession) -> Stream:
        return plan_twice(session, lambda: stream_of_sql(streaming(session, folder, tables, delay), query))

    stream.run(plan)
    assert len(stream.epochs) == EPOCHS
    prepare(spark)
    rows = 0
    for files in range(1, EPOCHS + 1):
        for table in tables:
            paths = [str(folder / table / f"{number:05d}.parquet") for number in range(files)]
            spark.read.parquet(*paths).createOrReplaceTempView(table)
        expected = bag(spark.sql(query).collect())
        found = bag(row.values() for row in stream.table(OPENED + files).to_pylist())
        assert found == expected, f"files={files}, more={found - expected}, missing={expected - found}"
        rows = expected.total()
    assert rows > 0, "the query has no rows: it would prove nothing"


@pytest.mark.queries
@pytest.mark.parametrize("name", EACH_KIND)
def test_the_table_is_what_the_query_gives_in_batch(
    stream: StreamUnderTest, spark: SparkSession, folders: Mapping[str, Path], name: str
) -> None:
    # A table as it is now takes rows that are later than a watermark.
    check(stream, spark, folders["in any order"], name, delay="1 second")


@pytest.mark.queries
@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("name", NEXMARK)
def test_every_query_is_what_it_gives_in_batch(
    stream: StreamUnderTest, spark: SparkSession, folders: Mapping[str, Path], name: str, cut: str
) -> None:
    check(stream, spark, folders[cut], name)


@pytest.mark.long
def test_every_query_can_be_kept_up_to_date(spark: SparkSession, folders: Mapping[str, Path]) -> None:
    frame = streaming(spark, folders["in order"], TABLES)
    assert {*NEXMARK, *OF_PROCESSING_TIME} == QUERIES.keys()
    for name in NEXMARK:
        kept = [each for each in stream_of_sql(frame, QUERIES[name]).steps if each.step is not None]
        assert bool(kept) == (name not in ROW_BY_ROW), name


@pytest.mark.parametrize("name", OF_PROCESSING_TIME)
def test_what_means_processing_time_is_refused(spark: SparkSession, folders: Mapping[str, Path], name: str) -> None:
    frame = streaming(spark, folders["in order"], TABLES)
    with pytest.raises(InvalidPipelineError, match=r"as time goes by.*current_timestamp"):
        stream_of_sql(frame, QUERIES[name])
