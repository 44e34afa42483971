"""Joins of tables that change: after each epoch the stream's table is the join of its inputs as a batch makes it."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from dagster_ckpt import agg
from dagster_ckpt.clock import SystemClock
from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.operators import RunningAggregate
from dagster_ckpt.protocol.manifest.manifest import InputSpec, SourceIdentity
from dagster_ckpt.protocol.object_names import folder_of
from dagster_ckpt.runtime.declared.stream import Stream
from dagster_ckpt.runtime.upstreams.downstream import Downstream
from dagster_ckpt.runtime.upstreams.upstream_stream import newest_manifest, read_table
from dagster_ckpt.state.engine import Engine
from tests.spark.input_files import drop
from tests.spark.streams import FAST, StreamUnderTest
from tests.worlds.graph_stream import GraphStream

ONCE = replace(FAST, tolerable_failures=0)
Order = tuple[str, str, int]
EPOCHS: list[list[Order]] = [
    [("o1", "a", 5), ("o2", "b", 7), ("o1", "a", 5)],
    [("o3", "a", 1), ("o4", "c", 2), ("o2", "b", 7)],
    [("o5", "b", -7), ("o6", "c", 20), ("o7", "d", 3)],
    [("o8", "d", 4), ("o8", "d", 4), ("o9", "a", -100)],
]


def write(folder: Path, number: int, rows: Iterable[Order]) -> Path:
    orders, shops, amounts = zip(*rows, strict=True)
    columns = {"order": orders, "shop": shops, "amount": pa.array(amounts, pa.int64())}
    return drop(folder, number, pa.table(columns))


def read(session: SparkSession, folder: Path) -> Stream:
    reader = session.readStream.schema("order string, shop string, amount long").option("maxFilesPerTrigger", 1)
    return Stream(reader.parquet(str(folder)))


def bag(rows: Iterable[dict[str, object]]) -> Counter[str]:
    return Counter(repr(sorted(row.items())) for row in rows)


def bag_of_batch(frame: DataFrame) -> Counter[str]:
    return bag(row.asDict() for row in frame.collect())


@pytest.mark.parametrize("how", ["full"])
def test_two_branches_of_one_step_meet_again(how: str, spark: SparkSession, tmp_path: Path) -> None:
    stream, folder = StreamUnderTest(spark, tmp_path), tmp_path / "rows"
    folder.mkdir()

    def both(session: SparkSession) -> Stream:
        orders = read(session, folder).key_by("order").deduplicate()
        totals = orders.key_by("shop").aggregate(total=agg.sum("amount")).where("total > 2")
        large = orders.where("amount > 4").key_by("shop").aggregate(large=agg.count())
        return totals.key_by("shop").join(large.key_by("shop"), how=how)

    paths = [str(write(folder, number, rows)) for number, rows in enumerate(EPOCHS)]
    stream.run(both, ONCE)
    for number, epoch in enumerate(stream.epochs, 1):
        orders = spark.read.parquet(*paths[:number]).dropDuplicates(["order"])
        totals = orders.groupBy("shop").agg({"amount": "sum"}).withColumnRenamed("sum(amount)", "total")
        large = orders.where("amount > 4").groupBy("shop").count().withColumnRenamed("count", "large")
        rows = stream.rows(epoch.manifest.epoch)
        assert bag(rows) == bag_of_batch(totals.where("total > 2").join(large, "shop", how))
        assert epoch.manifest.table_rows == len(rows)
    assert len(stream.epochs) == len(EPOCHS)


@dataclass
class Tables:
    """Two tables of sums that change, and what reads them."""

    spark: SparkSession
    root: Path
    made: dict[str, GraphStream] = field(default_factory=dict)

    def stream(self, name: str) -> StreamUnderTest:
        return StreamUnderTest(self.spark, self.root, name, shards=2)

    def feed(self, name: str, number: int, rows: list[Order]) -> None:
        """One more epoch of a stream that sums a shop's amounts: as Spark makes it, but without it."""
        folder = self.root / f"{name}_rows"
        folder.mkdir(exist_ok=True)
        table = pq.read_table(write(folder, number, rows))
        if name not in self.made:
            source = InputSpec((SourceIdentity("parquet", folder.as_uri()),), table.schema)
            sums = RunningAggregate.build(("shop",), {"total": agg.sum("amount")}, source).pipeline
            self.made[name] = GraphStream(self.stream(name).address, name, sums, Engine(SystemClock()))
        self.made[name].commit(table)

    def table(self, session: SparkSession, name: str, reader: str) -> Stream:
        reads = Downstream(self.stream(reader).address, folder_of((reader,)), 100, 2, 1_000_000)
        return read_table(session, reads, newest_manifest(reads, (name,), SystemClock()))

    def batch(self, name: str) -> DataFrame:
        frame = self.spark.read.parquet(str(self.root / f"{name}_rows"))
        return frame.groupBy("shop").agg({"amount": "sum"}).withColumnRenamed("sum(amount)", "total")


@pytest.mark.long
@pytest.mark.reads_streams
@pytest.mark.parametrize("how", ["full"])
def test_two_tables_that_change_are_joined_and_the_join_is_read(
    how: str, spark_of_all: SparkSession, tmp_path: Path
) -> None:
    tables = Tables(spark_of_all, tmp_path)

    def joined(session: SparkSession) -> Stream:
        left, right = (tables.table(session, name, "joined") for name in ("left", "right"))
        few = left.select("total % 3 AS rest", "total > 0 AS above")
        other = right.select("shop AS other", "total % 3 AS rest")
        return few.key_by("rest").join(other.key_by("rest"), how=how)

    def copied(session: SparkSession) -> Stream:
        return tables.table(session, "joined", "copied")

    def totals(session: SparkSession) -> Stream:
        return tables.table(session, "joined", "totals").key_by("rest").aggregate(rows=agg.count())

    for number, rows in enumerate(EPOCHS[:3]):
        tables.feed("left", number, rows)
        tables.feed("right", number, EPOCHS[-1 - number])
        tables.stream("joined").run(joined, ONCE)
        few = tables.batch("left").selectExpr("total % 3 AS rest", "total > 0 AS above")
        other = tables.batch("right").selectExpr("shop AS other", "total % 3 AS rest")
        wanted = few.join(other, "rest", how)
        for name, function in (("joined", None), ("copied", copied)):
            if function is not None:
                tables.stream(name).run(function, ONCE)
            history = tables.stream(name).history()
            assert bag(history.read().to_pylist()) == bag_of_batch(wanted), name
            assert history.manifest().table_rows == wanted.count()
        tables.stream("totals").run(totals, ONCE)
        counted = wanted.groupBy("rest").count().withColumnRenamed("count", "rows")
        assert bag(tables.stream("totals").rows()) == bag_of_batch(counted)


def test_what_belongs_to_the_join_in_time_is_refused_without_it(spark: SparkSession, tmp_path: Path) -> None:
    rows = read(spark, tmp_path).key_by("shop")
    timed = Stream(rows.frame.selectExpr("*", "current_timestamp() AS at")).with_watermark("at", "1 minute")
    with pytest.raises(InvalidPipelineError, match="leave late and on_end out, or give expire_after"):
        rows.join(rows, late="keep")
    with pytest.raises(InvalidPipelineError, match="give expire_after, or leave with_watermark out"):
        rows.join(timed.key_by("shop"))
    changing = rows.aggregate(total=agg.sum("amount"))
    with pytest.raises(InvalidPipelineError, match=r"or .join without expire_after"):
        changing.key_by("shop").join(rows, "1 minute")
