"""Several steps in one epoch: each a stage of one Spark job, all in one manifest."""

import os
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from dagster_ckpt import agg, tumbling
from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.runtime.declared.stream import Stream
from dagster_ckpt.runtime.driver.stream_job import JobHooks
from dagster_ckpt.runtime.driver.streaming_query import EpochQuery
from dagster_ckpt.runtime.micro_batch import epoch_plans
from dagster_ckpt.runtime.micro_batch.epoch_driver import CommittedEpoch
from dagster_ckpt.runtime.task.dataflow import shard_replies
from tests.spark.streams import FAST, StreamUnderTest
from tests.spark.ways import SPARK


class Crash(BaseException):
    """What a process would die of."""


def drop(folder: Path, number: int, rows: list[tuple[str, str, int]]) -> None:
    folder.mkdir(exist_ok=True)
    table = pa.table(list(map(list, zip(*rows, strict=True))), names=["order", "shop", "amount"])
    pq.write_table(table, folder / f".{number}.parquet")
    os.utime(folder / f".{number}.parquet", (number, number))  # Spark reads the oldest first
    (folder / f".{number}.parquet").rename(folder / f"{number}.parquet")


def rows_of(session: SparkSession, folder: Path) -> Stream:
    reader = session.readStream.schema("order string, shop string, amount long").option("maxFilesPerTrigger", 1)
    return Stream(reader.parquet(str(folder)))


EPOCHS = [
    [("o1", "a", 5), ("o2", "b", 7), ("o1", "a", 5)],
    [("o3", "a", 1), ("o4", "c", 2), ("o2", "b", 7)],
    [("o5", "b", 10), ("o6", "c", 20), ("o7", "d", 3)],
    [("o8", "d", 4), ("o8", "d", 4), ("o9", "a", 100)],
]


def totals_by_size(session: SparkSession, folder: Path) -> Stream:
    """How many shops have a total in each class of ten, each order counted once."""
    return (
        rows_of(session, folder)
        .key_by("order")
        .deduplicate()
        .key_by("shop")
        .aggregate(total=agg.sum("amount"))
        .where("total > 5")
        .aggregate(shops=agg.count(), all=agg.sum("total"))
    )


def expected(epochs: list[list[tuple[str, str, int]]]) -> list[dict[str, object]]:
    orders = {order: (shop, amount) for rows in reversed(epochs) for order, shop, amount in reversed(rows)}
    totals: dict[str, int] = {}
    for shop, amount in orders.values():
        totals[shop] = totals.get(shop, 0) + amount
    large = [total for total in totals.values() if total > 5]
    return [{"shops": len(large), "all": sum(large)}] if large else []


def test_three_steps_are_one_epoch(spark: SparkSession, tmp_path: Path) -> None:
    stream, folder = StreamUnderTest(spark, tmp_path), tmp_path / "rows"
    for number, rows in enumerate(EPOCHS):
        drop(folder, number, rows)
        stream.run(lambda session: totals_by_size(session, folder))
        manifest = stream.history().manifest()
        assert stream.rows() == expected(EPOCHS[: number + 1])
        assert set(manifest.runs) == {"0.rows", "1.groups", "groups"}
        assert manifest.statistics.total_rows_in == sum(map(len, EPOCHS[: number + 1]))
    epochs = [each.epoch for each in stream.history().manifest().retained]
    assert [stream.rows(epoch) for epoch in epochs] == [expected(EPOCHS[: n + 1]) for n in range(len(EPOCHS))]


def test_a_source_may_have_no_rows_while_another_has(spark: SparkSession, tmp_path: Path) -> None:
    """Each shard of each step has a task in each epoch, as of a source that never ends."""

    def joined(session: SparkSession) -> Stream:
        totals = rows_of(session, tmp_path / "in").key_by("shop").aggregate(total=agg.sum("amount"))
        shops = rows_of(session, tmp_path / "shops").select("shop AS name", "amount AS size")
        return totals.key_by("shop").join(shops.key_by("name"))

    drop(tmp_path / "in", 1, EPOCHS[0])
    for number, shop in enumerate("ab", 1):
        drop(tmp_path / "shops", number, [("", shop, number)])
    stream = StreamUnderTest(spark, tmp_path)
    stream.run(joined)
    found = {(row["name"], row["total"], row["size"]) for row in stream.rows()}
    assert found == {("a", 10, 1), ("b", 7, 2)}


@pytest.mark.ways(SPARK)
def test_spark_counts_the_rows_of_each_source(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`numInputRows` in Spark's progress is correct, although the batch runs in another plan than Spark's."""
    stream, counted, stop = StreamUnderTest(spark, tmp_path), list[list[int]](), EpochQuery.stop
    for number, rows in enumerate(EPOCHS):
        drop(tmp_path / "left", number, rows)
        drop(tmp_path / "right", number, rows[: 1 + number % 3])

    def noted(query: EpochQuery) -> None:
        own: Any = query._query
        for each in own.recentProgress if own is not None else ():
            counted.append([source.numInputRows for source in each.sources])
        stop(query)

    def both(session: SparkSession) -> Stream:
        left, right = (rows_of(session, tmp_path / side).key_by("order").deduplicate() for side in ("left", "right"))
        return left.key_by("order").join(right.select("order", "amount AS other").key_by("order"))

    monkeypatch.setattr(EpochQuery, "stop", noted)
    stream.run(both)
    assert counted == [[len(rows), len(rows[: 1 + number % 3])] for number, rows in enumerate(EPOCHS)]


def test_a_crash_and_a_rollback_take_all_steps_back_together(spark: SparkSession, tmp_path: Path) -> None:
    stream, folder = StreamUnderTest(spark, tmp_path), tmp_path / "rows"
    for number, rows in enumerate(EPOCHS):
        drop(folder, number, rows)

    def crash(epoch: CommittedEpoch) -> None:
        if epoch.manifest.statistics.total_epochs == 2:
            raise Crash

    with pytest.raises(Crash):
        stream.run(lambda session: totals_by_size(session, folder), hooks=JobHooks(on_commit=crash))
    second = stream.history().manifest().epoch
    assert stream.rows() == expected(EPOCHS[:2])
    stream.run(lambda session: totals_by_size(session, folder))
    assert stream.rows() == expected(EPOCHS)
    stream.run(lambda session: totals_by_size(session, folder), FAST, from_epoch=second)
    assert stream.rows() == expected(EPOCHS)


DAY = datetime(2013, 1, 1, tzinfo=UTC)
SALES = [
    [(0, "a", 1), (5, "b", 2), (12, "a", 4), (16, "a", 4)],
    [(21, "b", 8), (22, "a", 16), (9, "a", 1000)],
    [(31, "b", 32), (44, "a", 64), (3, "b", 1000)],
    [(65, "a", 128), (61, "b", 256)],
]
"""Minute, shop and amount of each row. The watermark is 5 minutes behind: the rows of 1000 are late."""


def sold(session: SparkSession, folder: Path) -> Stream:
    reader = session.readStream.schema("at timestamp, shop string, amount long").option("maxFilesPerTrigger", 1)
    return Stream(reader.parquet(str(folder))).with_watermark("at", "5 minutes")


def drop_sales(folder: Path) -> None:
    folder.mkdir()
    for number, rows in enumerate(SALES):
        at, shop, amount = zip(*rows, strict=True)
        times = pa.array([DAY + timedelta(minutes=minute) for minute in at], pa.timestamp("us", "UTC"))
        table = pa.table({"at": times, "shop": shop, "amount": pa.array(amount, pa.int64())})
        pq.write_table(table, folder / f".{number}.parquet")
        os.utime(folder / f".{number}.parquet", (number + 1, number + 1))
        (folder / f".{number}.parquet").rename(folder / f"{number}.parquet")


def totals(minutes: int) -> dict[tuple[datetime, str], int]:
    """The total of each shop in each window of that length, by the window's start."""
    found: dict[tuple[datetime, str], int] = {}
    for minute, shop, amount in (row for rows in SALES for row in rows if row[2] != 1000):
        key = DAY + timedelta(minutes=minute - minute % minutes), shop
        found[key] = found.get(key, 0) + amount
    return found


@pytest.mark.parametrize("column", ["window_start", "window_end", "began"])
def test_windows_of_windows_come_out_together(spark: SparkSession, tmp_path: Path, column: str) -> None:
    """No row of the first windows is late in the second ones, however much comes out at once."""
    stream, folder = StreamUnderTest(spark, tmp_path), tmp_path / "rows"
    drop_sales(folder)

    def largest(session: SparkSession) -> Stream:
        tens = sold(session, folder).key_by("shop").window(tumbling("10 minutes"), on_end="flush")
        tens_of = tens.aggregate(total=agg.sum("amount")).select("shop", "total", "window_end", "window_start")
        named = tens_of.select("*", "window_start AS began") if column == "began" else tens_of
        timed = named.with_watermark(column, "20 minutes" if column == "began" else "0s")
        return timed.window(tumbling("30 minutes")).aggregate(sum=agg.sum("total"), most=agg.max("total"))

    stream.run(largest)
    manifest = stream.history().manifest()
    moved = timedelta(minutes=10) if column == "window_end" else timedelta()
    found: dict[datetime, list[int]] = {}
    for (start, _), total in totals(10).items():
        at = start + moved
        found.setdefault(at - timedelta(minutes=at.minute % 30), []).append(total)
    assert stream.rows() == sorted(
        [
            {"window_start": start, "window_end": start + timedelta(minutes=30), "sum": sum(all_), "most": max(all_)}
            for start, all_ in found.items()
        ],
        key=repr,
    )
    assert manifest.statistics.total_late_rows == 2
    assert manifest.harvested_us == manifest.watermark_us


def test_a_step_that_two_steps_read_works_once(spark: SparkSession, tmp_path: Path) -> None:
    """One source, one step that two branches read, and a step in which those meet again."""
    stream, folder = StreamUnderTest(spark, tmp_path), tmp_path / "rows"
    drop_sales(folder)

    def shares(session: SparkSession) -> Stream:
        by = ("one", "window_start")
        by_shop = sold(session, folder).key_by("shop").window(tumbling("10 minutes"), on_end="flush")
        shops = by_shop.aggregate(total=agg.sum("amount")).with_watermark("window_start", "0s")
        every = shops.window(tumbling("10 minutes")).aggregate(of=agg.sum("total"))
        every = every.select("1 AS one", "window_start", "of")
        return (
            shops.where("total > 1")
            .with_column("one", "1")
            .key_by(*by)
            .instant_join(every.with_watermark("window_start", "0s").key_by(*by))
            .select("shop", "window_start", "total", "of")
        )

    stream.run(shares)
    of: dict[datetime, int] = {}
    for (start, _), total in totals(10).items():
        of[start] = of.get(start, 0) + total
    expected = [
        {"shop": shop, "window_start": start, "total": total, "of": of[start]}
        for (start, shop), total in totals(10).items()
        if total > 1
    ]
    assert stream.rows() == sorted(expected, key=repr)
    steps = stream.history().manifest().pipeline.steps
    assert [[each.step for each in step.inputs] for step in steps] == [[None], [0], [0, 1], [2]]


def test_spark_may_work_between_steps(spark: SparkSession, tmp_path: Path) -> None:
    stream, folder = StreamUnderTest(spark, tmp_path), tmp_path / "rows"
    for number, rows in enumerate(EPOCHS):
        drop(folder, number, rows)

    def classes(session: SparkSession) -> Stream:
        return (
            rows_of(session, folder)
            .key_by("order")
            .deduplicate()
            .key_by("shop")
            .aggregate(total=agg.sum("amount"))
            .with_column("class", "CAST(total / 10 AS INT)")
            .transform(lambda changes: changes.withColumnRenamed("total", "money"))
            .select("class", "money * 2 AS twice")
            .key_by("class")
            .aggregate(shops=agg.count(), twice=agg.sum("twice"))
        )

    stream.run(classes)
    found: dict[int, list[int]] = {}
    totals = {"a": 106, "b": 17, "c": 22, "d": 7}
    for total in totals.values():
        found.setdefault(total // 10, []).append(2 * total)
    assert stream.rows() == sorted(
        [{"class": each, "shops": len(all_), "twice": sum(all_)} for each, all_ in found.items()], key=repr
    )


@pytest.mark.parametrize("on", ["sales.shop = names.shop", "sales.shop LIKE names.shop"])
def test_a_table_larger_than_an_epoch_is_joined_behind_a_step(spark: SparkSession, tmp_path: Path, on: str) -> None:
    """Spark takes the smaller side of a join to each task, in a job of its own: it must never be that of a step."""
    stream, folder = StreamUnderTest(spark, tmp_path), tmp_path / "rows"
    drop_sales(folder)
    others = [f"none {number}" for number in range(5_000)]
    names = pa.table({"shop": ["a", "b", *others], "city": ["Oslo", "Bern", *others]})
    pq.write_table(names, tmp_path / "names")

    def by_city(session: SparkSession) -> Stream:
        cities = session.read.parquet(str(tmp_path / "names")).alias("names")
        windows = sold(session, folder).key_by("shop").window(tumbling("10 minutes"), on_end="flush")
        sales = windows.aggregate(total=agg.sum("amount"))
        named = sales.transform(lambda rows: rows.alias("sales").join(cities, F.expr(on)).select("city", "total"))
        return named.key_by("city").aggregate(total=agg.sum("total"))

    stream.run(by_city)
    of = {shop: sum(total for (_, its), total in totals(10).items() if its == shop) for shop in "ab"}
    assert stream.rows() == [{"city": "Bern", "total": of["b"]}, {"city": "Oslo", "total": of["a"]}]


@pytest.mark.ways(SPARK)
@pytest.mark.parametrize(
    ("column", "planned_anew"), [("amount + 1", False), ("amount + rand(1)", True), ("current_timestamp()", True)]
)
def test_steps_are_planned_once_where_nothing_else_can_come_of_it(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, column: str, *, planned_anew: bool
) -> None:
    stream, folder, plans = StreamUnderTest(spark, tmp_path), tmp_path / "rows", count()
    drop_sales(folder)

    def planned(*given: Any) -> DataFrame:
        next(plans)
        return shard_replies(*given)

    def largest(session: SparkSession) -> Stream:
        windows = sold(session, folder).key_by("shop").window(tumbling("10 minutes"), on_end="flush")
        totals_of = windows.aggregate(amount=agg.sum("amount")).with_column("x", column)
        return totals_of.key_by("shop").aggregate(most=agg.max("x"))

    monkeypatch.setattr(epoch_plans, "shard_replies", planned)
    stream.run(largest)
    assert (next(plans) > 1) is planned_anew


def test_the_time_of_day_is_that_of_the_epoch(spark: SparkSession, tmp_path: Path) -> None:
    stream, folder = StreamUnderTest(spark, tmp_path), tmp_path / "rows"
    drop_sales(folder)

    def seen(session: SparkSession) -> Stream:
        windows = sold(session, folder).key_by("shop").window(tumbling("10 minutes"), on_end="flush")
        sales = windows.aggregate(total=agg.sum("amount")).with_column("now", "current_timestamp()")
        return sales.key_by("shop").aggregate(first=agg.min("now"), last=agg.max("now"))

    stream.run(seen)
    assert [row["first"] < row["last"] for row in stream.table().to_pylist()] == [True, True]


@pytest.mark.parametrize(
    ("work", "error"),
    [
        (lambda s: s.select("shop", "rand() AS x"), "is not deterministic over the row's"),
        (lambda s: s.with_column("x", "current_timestamp()"), "is not deterministic over the row's"),
        (lambda s: s.transform(lambda rows: rows.drop("_change_type")), "the next step must know: keep it as it is"),
        (lambda s: s.transform(lambda rows: rows.groupBy("shop").count()), "the next step must know"),
        (lambda s: s.transform(lambda rows: rows.crossJoin(rows.select("total"))), "reads more than the row itself"),
        (lambda s: s.with_column("_change_type", "'insert'"), "keep it as it is"),
        (lambda s: s.transform(lambda rows: rows.repartition(3)), "leave out repartition"),
        (lambda s: s.transform(lambda rows: rows.union(rows)), "leave out repartition"),
    ],
)
def test_work_on_changing_rows_follows_from_the_row_alone(
    spark: SparkSession, tmp_path: Path, work: Callable[[Stream], Stream], error: str
) -> None:
    drop(tmp_path / "rows", 0, EPOCHS[0])

    def function(session: SparkSession) -> Stream:
        shops = rows_of(session, tmp_path / "rows").key_by("shop").aggregate(total=agg.sum("amount"))
        return work(shops).aggregate(n=agg.count())

    with pytest.raises(InvalidPipelineError, match=error):
        StreamUnderTest(spark, tmp_path).run(function)


def spans(rows: pa.Table) -> pa.ChunkedArray:
    """A user-defined aggregate: how far the totals of a key are apart."""
    found = rows.group_by("_group", use_threads=False).aggregate([("total", "min"), ("total", "max")])
    return pc.subtract(found["total_max"], found["total_min"])


def test_an_aggregate_of_ones_own_follows_a_table_that_changes(spark: SparkSession, tmp_path: Path) -> None:
    stream, folder = StreamUnderTest(spark, tmp_path, shards=2), tmp_path / "rows"

    def declared(session: SparkSession) -> Stream:
        totals = rows_of(session, folder).key_by("shop").aggregate(total=agg.sum("amount"))
        classed = totals.with_column("is_large", "total > 15").key_by("is_large")
        return classed.aggregate(
            span=agg.user_defined(spans, ["total"], pa.int64()),
            totals=agg.collect("total", 10, by="total"),
            largest=agg.last(["total", "shop"], by="total"),
        )

    sums = Counter[str]()
    for number, rows in enumerate(EPOCHS):
        drop(folder, number, rows)
    stream.run(declared)
    for epoch, rows in zip(stream.epochs, EPOCHS, strict=True):
        for _, shop, amount in rows:
            sums[shop] += amount
        expected = []
        for is_large in (False, True):
            ranked = sorted((total, shop) for shop, total in sums.items() if (total > 15) == is_large)
            totals = [total for total, _ in ranked]
            if ranked:
                largest = dict(zip(("total", "shop"), ranked[-1], strict=True))
                row = {"is_large": is_large, "span": totals[-1] - totals[0], "totals": totals, "largest": largest}
                expected.append(row)
        assert stream.rows(epoch.manifest.epoch) == expected


def test_rows_that_nothing_identifies_are_counted(spark: SparkSession, tmp_path: Path) -> None:
    """A projection of a changing table may have equal rows: its table has each of them."""
    stream, folder = StreamUnderTest(spark, tmp_path), tmp_path / "rows"

    def sizes(session: SparkSession) -> Stream:
        shops = rows_of(session, folder).key_by("shop").aggregate(total=agg.sum("amount"))
        return shops.select("total > 5 AS is_large", "CAST(total / 100 AS INT) AS hundreds")

    totals: dict[str, int] = {}
    for number, rows in enumerate(EPOCHS):
        drop(folder, number, rows)
    stream.run(sizes)
    for epoch, rows in zip(stream.epochs, EPOCHS, strict=True):
        for _, shop, amount in rows:
            totals[shop] = totals.get(shop, 0) + amount
        expected = [{"is_large": total > 5, "hundreds": total // 100} for total in totals.values()]
        assert stream.rows(epoch.manifest.epoch) == sorted(expected, key=repr)
    changes = stream.history().changes(0, stream.history().latest().epoch)
    assert changes.num_rows > 0


def test_the_worst_of_each_group_follow_a_table_that_changes(spark: SparkSession, tmp_path: Path) -> None:
    """An aggregate, its mean over all, a join of both and the first rows of each group: one commit an epoch."""
    stream, folder = StreamUnderTest(spark, tmp_path), tmp_path / "rows"

    def largest(session: SparkSession) -> Stream:
        orders = (
            rows_of(session, folder)
            .key_by("order")
            .aggregate(amount=agg.sum("amount"), shop=agg.last("shop", by="amount"))
        )
        whole = orders.aggregate(total=agg.sum("amount")).with_column("one", "1")
        shares = orders.with_column("one", "1").key_by("one").join(whole.key_by("one"))
        return shares.select("order", "shop", "amount", "total").key_by("shop").top(1, by=["amount desc", "order asc"])

    for number, rows in enumerate(EPOCHS):
        drop(folder, number, rows)
    stream.run(largest)
    for number, epoch in enumerate(stream.epochs):
        orders: dict[str, tuple[str, int]] = {}
        for order, shop, amount in (row for rows in EPOCHS[: number + 1] for row in rows):
            orders[order] = shop, orders.get(order, (shop, 0))[1] + amount
        total = sum(amount for _, amount in orders.values())
        best: dict[str, tuple[int, str]] = {}
        for order, (shop, amount) in orders.items():
            best[shop] = min(best.get(shop, (0, "")), (-amount, order))
        assert stream.rows(epoch.manifest.epoch) == sorted(
            [
                {"order": order, "shop": shop, "amount": -amount, "total": total}
                for shop, (amount, order) in best.items()
            ],
            key=repr,
        )


def test_a_later_step_has_keys_that_the_source_does_not(spark: SparkSession, tmp_path: Path) -> None:
    """How many amounts occur how often: all keys are numbers, which Spark's batches are laid out for beforehand."""
    stream, folder = StreamUnderTest(spark, tmp_path), tmp_path / "rows"
    for number, rows in enumerate(EPOCHS):
        drop(folder, number, rows)

    def often(session: SparkSession) -> Stream:
        counts = rows_of(session, folder).key_by("amount").aggregate(times=agg.count())
        return counts.key_by("times").aggregate(amounts=agg.count())

    stream.run(often)
    times = Counter(amount for rows in EPOCHS for _, _, amount in rows)
    expected = [{"times": each, "amounts": amounts} for each, amounts in Counter(times.values()).items()]
    assert stream.rows() == sorted(expected, key=repr)


def test_late_rows_of_a_later_step_are_counted_and_kept(spark: SparkSession, tmp_path: Path) -> None:
    """Their time is out of range, in the step behind a join of two sources."""
    stream, folder = StreamUnderTest(spark, tmp_path), tmp_path / "rows"
    drop_sales(folder)

    def joined(session: SparkSession) -> Stream:
        reader = session.readStream.schema("at timestamp, shop string, amount long")
        other = Stream(reader.parquet(str(folder)).selectExpr("at AS other", "shop", "amount AS of"))
        right = other.with_watermark("other", "5 minutes").key_by("shop", "of")
        both = sold(session, folder).key_by("shop", "amount").interval_join(right, "0s", "0s")
        never = both.select("shop", "amount", "timestamp_micros(9000000000000000000) AS at").with_watermark("at", "0s")
        return never.window(tumbling("10 minutes"), late="keep").aggregate(n=agg.count())

    stream.run(joined)
    statistics = stream.history().manifest().statistics
    kept = stream.history().late_rows(2)
    assert stream.rows() == []
    assert kept.num_rows > 0
    assert statistics.late_rows_by_input is not None
    assert statistics.late_rows_by_input[2] == kept.num_rows
    assert sum(statistics.late_rows_by_input) == statistics.total_late_rows
