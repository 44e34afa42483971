"""Columns keep whatever name Spark takes: as keys, in aggregates, windows and joins, and for every reader."""

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyspark.sql import DataFrame, SparkSession

from dagster_ckpt import KeyedState, ProcessContext, ProcessFunction, SparkReader, agg, tumbling
from dagster_ckpt.cli import main
from dagster_ckpt.clock import SystemClock
from dagster_ckpt.integration.reading.io_manager import as_annotated
from dagster_ckpt.protocol.object_names import folder_of
from dagster_ckpt.runtime.declared.stream import Stream
from dagster_ckpt.runtime.upstreams.downstream import Downstream
from dagster_ckpt.runtime.upstreams.upstream_stream import newest_manifest, read_changes, read_table
from tests.spark.input_files import drop
from tests.spark.streams import StreamUnderTest

NAMES = [
    "a.b", "a", "a.b.c", "tick`tock", "`", "``", ".", "..", ".dot", "[0]", "two words", " around ", "naïve", "名",
    "x=y", "x,y", "*", "a.*", "-", "50%", "$1", '"', "'", "\\", "tab\tand\nline", "_0", "_column_0", "_input", "k",
]  # fmt: skip
TIMED = "at.time"
SCHEMA = pa.schema([*((name, pa.int64()) for name in NAMES), (TIMED, pa.timestamp("us", "UTC"))])
ROWS = 3


def rows_of(number: int) -> pa.Table:
    columns = [[number * ROWS + row for row in range(ROWS)] for _ in NAMES]
    times = pa.array([number * 60_000_000] * ROWS, pa.timestamp("us", "UTC"))
    return pa.Table.from_arrays([*map(pa.array, columns), times], schema=SCHEMA)


@pytest.fixture
def named(inbox: Path) -> Callable[[SparkSession], DataFrame]:
    """A streaming DataFrame with columns of all these names."""
    plain = pa.schema([pa.field(f"c{at}", field.type) for at, field in enumerate(SCHEMA)])
    for number in range(2):
        drop(inbox, number, pa.Table.from_arrays(rows_of(number).columns, schema=plain))
    ddl = ", ".join(f"c{at} {'timestamp' if field.name == TIMED else 'long'}" for at, field in enumerate(SCHEMA))
    return lambda spark: (
        spark.readStream.schema(ddl).option("maxFilesPerTrigger", "1").parquet(str(inbox)).toDF(*SCHEMA.names)
    )


def expected(names: list[str]) -> list[dict[str, object]]:
    return [dict.fromkeys(names, value) for value in range(2 * ROWS)]


def shown(table: pa.Table, names: list[str]) -> list[dict[str, object]]:
    return sorted(table.select(names).to_pylist(), key=lambda row: list(row.values()))


def every_reader(stream: StreamUnderTest, spark: SparkSession, names: list[str]) -> None:
    """Every reader gets the same table of `2 * ROWS` rows."""
    table = stream.table()
    assert set(names) <= set(table.column_names)
    assert shown(table, names) == expected(names)
    reader = SparkReader(spark, stream.address.url)
    for frame in (reader.read(stream.name), reader.read(stream.name, columns=names), as_annotated(table, DataFrame)):
        assert isinstance(frame, DataFrame)
        assert shown(frame.toArrow(), names) == expected(names)
    for name in names:
        assert stream.history().read(columns=[name]).column_names == [name]
    newest = {row[names[0]]: row for row in stream.history().changes(0).to_pylist()}
    assert [{name: newest[value][name] for name in names} for value in sorted(newest)] == expected(names)
    for words in (["read"], ["changes", "--after", "0"]):
        result = CliRunner().invoke(main, ["--store", stream.address.url, words[0], stream.name, *words[1:], "--json"])
        assert result.exit_code == 0, result.output
        assert (
            CliRunner().invoke(main, ["--store", stream.address.url, words[0], stream.name, *words[1:]]).exit_code == 0
        )


@pytest.mark.long
def test_rows_as_they_are(
    stream: StreamUnderTest, spark: SparkSession, named: Callable[[SparkSession], DataFrame]
) -> None:
    stream.run(lambda session: Stream(named(session)))
    every_reader(stream, spark, NAMES)


def test_keys_and_aggregates(
    stream: StreamUnderTest, spark: SparkSession, named: Callable[[SparkSession], DataFrame]
) -> None:
    totals = {f"{name}.sum": agg.sum(name) for name in NAMES[:-1] if not name.startswith("_")}
    least = {f"least of {name}": agg.min(name) for name in NAMES}
    stream.run(lambda session: Stream(named(session)).key_by(*NAMES).aggregate(**totals, **least))
    every_reader(stream, spark, [*NAMES, *totals, *least])
    history = stream.history()
    assert shown(history.get({name: [4, 5] for name in NAMES}), NAMES) == expected(NAMES)[4:]
    keys = [word for name in NAMES for word in ("--key", f"{name}=4")]
    result = CliRunner().invoke(main, ["--store", stream.address.url, "get", stream.name, *keys, "--json"])
    assert result.exit_code == 0, result.output
    [row] = json.loads(result.output)["data"]
    assert {row[name] for name in NAMES} == {4}


def test_the_hash_in_capitals_is_a_name_like_any_other(stream: StreamUnderTest, inbox: Path) -> None:
    drop(inbox, 0, pa.table({"k": ["a", "a"], "v": [1, 2]}))

    stream.run(
        lambda spark: (
            Stream(spark.readStream.schema("k string, v long").parquet(str(inbox)).toDF("_HASH", "_Input"))
            .key_by("_HASH")
            .aggregate(n=agg.sum("_Input"))
        )
    )
    assert stream.rows() == [{"_HASH": "a", "n": 3}]


class Through(ProcessFunction):
    """Each row as it came."""

    output = pa.schema([(name, pa.int64()) for name in NAMES])

    def on_rows(self, rows: pa.Table, state: KeyedState, context: ProcessContext) -> pa.Table:
        return rows.select(NAMES)


def timed(frame: DataFrame) -> Stream:
    return Stream(frame).with_watermark(TIMED, "0s").key_by(*NAMES)


def joined(frame: DataFrame) -> Stream:
    right = Stream(frame.withColumnRenamed(TIMED, "and.then")).with_watermark("and.then", "0s").key_by(*NAMES)
    return timed(frame).join(right, "0s")


STEPS: dict[str, Callable[[DataFrame], Stream]] = {
    "deduplicate": lambda frame: Stream(frame).key_by(*NAMES).deduplicate(),
    "newest": lambda frame: timed(frame).deduplicate("last"),
    "windows": lambda frame: timed(frame).window(tumbling("1s"), on_end="flush").aggregate(n=agg.count()),
    "join": joined,
    "process": lambda frame: Stream(frame).key_by(*NAMES).process(Through()),
}


@pytest.mark.long
@pytest.mark.parametrize("step", STEPS)
def test_steps(
    stream: StreamUnderTest, spark: SparkSession, named: Callable[[SparkSession], DataFrame], step: str
) -> None:
    stream.run(lambda session: STEPS[step](named(session)))
    every_reader(stream, spark, NAMES)


@pytest.mark.long
def test_late_rows(stream: StreamUnderTest, inbox: Path, named: Callable[[SparkSession], DataFrame]) -> None:
    def function(session: SparkSession) -> Stream:
        counts = timed(named(session)).window(tumbling("1s"), late="keep")
        return counts.aggregate(n=agg.count())

    stream.run(function)
    old = pa.Table.from_arrays(rows_of(-1).columns, names=[f"c{at}" for at in range(len(SCHEMA))])
    drop(inbox, 2, old)
    stream.run(function)
    late = stream.history().late_rows()
    assert shown(late, NAMES) == [dict.fromkeys(NAMES, value) for value in range(-ROWS, 0)]


@pytest.mark.long
@pytest.mark.reads_streams
@pytest.mark.parametrize("updating", [False, True])
def test_streams_that_read_streams(
    stream: StreamUnderTest, spark: SparkSession, named: Callable[[SparkSession], DataFrame], updating: bool
) -> None:
    down = StreamUnderTest(stream.spark, stream.root, "down")
    reads = Downstream(down.address, folder_of(("down",)), 100, 2)

    def up(session: SparkSession) -> Stream:
        rows = Stream(named(session))
        return rows.key_by(*NAMES).aggregate(n=agg.count()) if updating else rows

    def follows(session: SparkSession) -> Stream:
        return read_table(session, reads, newest_manifest(reads, stream.name.split("/"), SystemClock())).where(
            "`a.b` >= 0"
        )

    def log(session: SparkSession) -> Stream:
        return Stream(
            read_changes(session, reads, newest_manifest(reads, stream.name.split("/"), SystemClock())).drop(
                "_epoch", "_change_type"
            )
        )

    stream.run(up)
    down.run(follows)
    every_reader(down, spark, NAMES)
    other = StreamUnderTest(stream.spark, stream.root, "log")
    reads = Downstream(other.address, folder_of(("log",)), 100, 2)
    other.run(log)
    assert shown(other.table(), NAMES) == expected(NAMES)
