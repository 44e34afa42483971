"""Windows over tables whose rows come and go, and behind joins and unions, against Spark's batch."""

import os
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from dagster_ckpt import agg, hopping, tumbling
from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.runtime.declared.stream import Stream
from tests.spark.streams import StreamUnderTest

SCHEMA = "order string, version long, shop string, amount long, at timestamp"
DAY = datetime(2026, 1, 1, tzinfo=UTC)
Row = tuple[str, int, str, int, datetime | None]


def epochs(random: Random) -> list[list[Row]]:
    """Orders that change their shop, amount and time, in no order of time."""
    made = list[list[Row]]()
    for _ in range(4):
        rows = list[Row]()
        for _ in range(30):
            minute = random.choice([*range(0, 120, 7), None])
            at = None if minute is None else DAY + timedelta(minutes=minute)
            order, shop = random.choice(["o1", "o2", "o3", "o4", "o5", "o6"]), random.choice(["a", "b"])
            rows.append((order, random.randrange(10**6), shop, random.randrange(10), at))
        made.append(rows)
    return made


def drop(folder: Path, number: int, rows: Sequence[Row]) -> None:
    folder.mkdir(exist_ok=True)
    table = pa.table(list(map(list, zip(*rows, strict=True))), names=["order", "version", "shop", "amount", "at"])
    times = table.column("at").cast(pa.timestamp("us", "UTC"))
    pq.write_table(table.set_column(4, "at", times), folder / f".{number}.parquet")
    os.utime(folder / f".{number}.parquet", (number + 1, number + 1))
    (folder / f".{number}.parquet").rename(folder / f"{number}.parquet")


def read(session: SparkSession, folder: Path) -> Stream:
    reader = session.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
    return Stream(reader.parquet(str(folder)))


def newest(session: SparkSession, folder: Path) -> Stream:
    """The newest version of each order: a table whose rows change."""
    return read(session, folder).key_by("order").deduplicate("last", by="version")


def of_orders(session: SparkSession, folder: Path) -> Stream:
    windows = newest(session, folder).with_watermark("at", "0s").key_by("shop").window(hopping("1h", "30m"), early=True)
    return windows.aggregate(
        n=agg.count(), total=agg.sum("amount"), most=agg.max("amount"), orders=agg.count_distinct("order")
    )


def of_a_join(session: SparkSession, folder: Path) -> Stream:
    """Behind an inner join without a bound in time: its rows only come, however old they are."""
    left = read(session, folder).select("order", "shop", "at").key_by("order")
    right = read(session, folder).select("order AS other", "amount").key_by("other")
    windows = left.join(right).with_watermark("at", "0s").key_by("shop").window(tumbling("1 hour"), early=True)
    return windows.aggregate(n=agg.count(), total=agg.sum("amount"))


BATCH: dict[Callable[[SparkSession, Path], Stream], str] = {
    of_orders: """
        SELECT shop, window.start AS window_start, window.end AS window_end, count(*) AS n, sum(amount) AS total,
            max(amount) AS most, count(DISTINCT `order`) AS orders
        FROM (
            SELECT *, row_number() OVER (PARTITION BY `order` ORDER BY version DESC) AS place FROM rows)
        WHERE place = 1 GROUP BY shop, window(at, '1 hour', '30 minutes')""",
    of_a_join: """
        SELECT a.shop, window.start AS window_start, window.end AS window_end, count(*) AS n, sum(b.amount) AS total
        FROM rows a JOIN rows b ON a.`order` = b.`order` GROUP BY a.shop, window(a.at, '1 hour')""",
}


def batch(spark: SparkSession, folder: Path, text: str) -> list[dict[str, object]]:
    session = spark.newSession()
    rows: DataFrame = session.read.schema(SCHEMA).parquet(str(folder))
    rows.createOrReplaceTempView("rows")
    return sorted(session.sql(text).toArrow().to_pylist(), key=repr)


@pytest.mark.parametrize("declared", BATCH)
def test_early_windows_are_those_of_a_batch(
    spark: SparkSession, tmp_path: Path, declared: Callable[[SparkSession, Path], Stream]
) -> None:
    stream, folder = StreamUnderTest(spark, tmp_path, shards=2), tmp_path / "rows"
    for number, rows in enumerate(epochs(Random(7))):
        drop(folder, number, rows)
        stream.run(lambda session: declared(session, folder))
        expected = batch(spark, folder, BATCH[declared])
        assert [repr_of(row) for row in stream.rows()] == [repr_of(row) for row in expected]
    assert stream.history().manifest().statistics.total_late_rows > 0, "rows without an event time are in no window"


def repr_of(row: dict[str, object]) -> str:
    return repr({name: value.timestamp() if isinstance(value, datetime) else value for name, value in row.items()})


def test_final_windows_of_a_table_have_what_is_there_when_they_close(spark: SparkSession, tmp_path: Path) -> None:
    stream, folder = StreamUnderTest(spark, tmp_path, shards=2), tmp_path / "rows"
    cut: list[list[Row]] = [
        [("o1", 1, "a", 5, DAY), ("o2", 1, "a", 7, DAY + timedelta(minutes=10))],
        [("o1", 2, "b", 6, DAY + timedelta(minutes=20)), ("o3", 1, "a", 1, DAY + timedelta(minutes=70))],
        [("o2", 2, "b", 8, DAY + timedelta(minutes=80)), ("o4", 1, "b", 2, DAY + timedelta(minutes=30))],
        [("o5", 1, "a", 3, DAY + timedelta(hours=9))],
    ]

    def declared(session: SparkSession) -> Stream:
        source = read(session, folder).with_watermark("at", "0s")
        table = source.key_by("order").deduplicate("last", by="version").with_watermark("at", "0s")
        return table.key_by("shop").window(tumbling("1 hour"), late="keep").aggregate(total=agg.sum("amount"))

    for number, rows in enumerate(cut):
        drop(folder, number, rows)
        stream.run(declared)
    found = [(row["shop"], row["window_start"], row["total"]) for row in stream.rows()]
    first, second = DAY, DAY + timedelta(hours=1)
    # The first window has o1 as it became, and o2 as it was: its change came behind the watermark, as did o4.
    assert found == [("a", first, 7), ("a", second, 1), ("b", first, 6), ("b", second, 8)]
    late = stream.history().late_rows(1).select(["order", "_change_type"]).to_pylist()
    assert {(row["order"], row["_change_type"]) for row in late} == {("o2", "update_preimage"), ("o4", "insert")}


def test_a_watermark_goes_through_a_union(spark: SparkSession, tmp_path: Path) -> None:
    """The slower input holds it back, and no row of it is late."""
    stream, folders = StreamUnderTest(spark, tmp_path, shards=2), (tmp_path / "left", tmp_path / "right")
    drop(folders[0], 0, [("o1", 1, "a", 5, DAY + timedelta(hours=5))])
    drop(folders[0], 1, [("o2", 1, "a", 6, DAY + timedelta(hours=9))])
    drop(folders[1], 0, [("o3", 1, "a", 7, DAY + timedelta(hours=5))])
    drop(folders[1], 1, [("o4", 1, "a", 8, DAY + timedelta(hours=7))])

    def declared(session: SparkSession) -> Stream:
        left, right = (read(session, folder).with_watermark("at", "0s") for folder in folders)
        both = left.union(right).with_watermark("at", "0s")
        return both.key_by("shop").window(tumbling("1 hour")).aggregate(n=agg.count(), total=agg.sum("amount"))

    stream.run(declared)
    manifest = stream.history().manifest()
    assert [(row["window_start"], row["n"], row["total"]) for row in stream.rows()] == [
        (DAY + timedelta(hours=5), 2, 12)
    ]
    assert manifest.statistics.total_late_rows == 0
    assert manifest.watermark_us == int((DAY + timedelta(hours=7)).timestamp() * 1e6)


def test_a_watermark_behind_a_union_needs_one_before_it_on_both_sides(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "rows").mkdir()

    def declared(session: SparkSession) -> Stream:
        left, right = (read(session, tmp_path / "rows") for _ in range(2))
        both = left.with_watermark("at", "0s").union(right).with_watermark("at", "0s")
        return both.window(tumbling("1 hour")).aggregate(n=agg.count())

    with pytest.raises(InvalidPipelineError, match=r"call with_watermark on each of them.* column=at"):
        StreamUnderTest(spark, tmp_path).run(declared)


@pytest.mark.parametrize(
    ("follow", "message"),
    [
        (
            lambda table: table.key_by("shop").aggregate(n=agg.count()),
            r"with_watermark out\. step=aggregate, column=at",
        ),
        (lambda table: table, r"with_watermark out\. step=None, column=at"),
        (lambda table: table.union(table), r"with_watermark out\. step=union, column=at"),
    ],
)
def test_only_a_window_asks_for_the_event_time_of_a_table(
    spark: SparkSession, tmp_path: Path, follow: Callable[[Stream], Stream], message: str
) -> None:
    (tmp_path / "rows").mkdir()
    with pytest.raises(InvalidPipelineError, match=message):
        StreamUnderTest(spark, tmp_path).run(
            lambda session: follow(newest(session, tmp_path / "rows").with_watermark("at", "0s"))
        )
