"""Top N and deduplication over a table that changes, as batch SQL has them after each epoch."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from dagster_ckpt import agg
from dagster_ckpt.runtime.declared.stream import Stream
from tests.spark.streams import StreamUnderTest
from tests.spark.test_several_steps import drop, rows_of

EPOCHS = [
    [("o1", "a", 5), ("o2", "b", 7), ("o3", "c", 5), ("o4", "d", 1)],
    [("o5", "a", 2), ("o6", "e", 7)],
    [("o7", "b", -7), ("o8", "e", -7), ("o9", "c", 0)],
    [("oa", "d", 30), ("ob", "f", 5), ("oc", "g", 5)],
]
TOTALS = "SELECT shop, shop < 'd' AS early, sum(amount) AS total FROM orders GROUP BY shop"


def totals(session: SparkSession, folder: Path) -> Stream:
    """The total of each shop, which changes; and where in the alphabet it is."""
    shops = rows_of(session, folder).key_by("shop").aggregate(total=agg.sum("amount"))
    return shops.select("shop", "shop < 'd' AS early", "total")


def in_batch(spark: SparkSession, epochs: list[list[tuple[str, str, int]]], query: str) -> list[dict[str, object]]:
    rows = [row for epoch in epochs for row in epoch]
    spark.createDataFrame(rows, "order string, shop string, amount long").createOrReplaceTempView("orders")
    return sorted((row.asDict() for row in spark.sql(query.format(totals=f"({TOTALS})")).collect()), key=repr)


@pytest.mark.parametrize(("ties", "function"), [("rows", "row_number()"), ("rank", "rank()")])
def test_top_is_what_sql_ranks_first(spark: SparkSession, tmp_path: Path, ties: str, function: str) -> None:
    stream, folder = StreamUnderTest(spark, tmp_path), tmp_path / "rows"
    query = (
        f"SELECT * FROM (SELECT *, {function} OVER (PARTITION BY early ORDER BY total DESC"
        f"{', shop' if ties == 'rows' else ''}) AS place FROM {{totals}}) WHERE place <= 2"
    )
    for number, rows in enumerate(EPOCHS):
        drop(folder, number, rows)
    stream.run(
        lambda session: totals(session, folder).key_by("early").top(2, "total desc", ties=ties, rank="place")  # type: ignore[arg-type]
    )
    epochs = [each.epoch for each in stream.history().manifest().retained]
    assert len(epochs) == len(EPOCHS)
    for number, epoch in enumerate(epochs):
        assert stream.rows(epoch) == in_batch(spark, EPOCHS[: number + 1], query)


def test_the_first_rows_of_all_and_the_newest_of_each_key(spark: SparkSession, tmp_path: Path) -> None:
    stream, folder = StreamUnderTest(spark, tmp_path), tmp_path / "rows"
    for number, rows in enumerate(EPOCHS):
        drop(folder, number, rows)

    def most(session: SparkSession) -> Stream:
        return totals(session, folder).key_by("early").deduplicate("last", by="total").top(1, "total asc")

    stream.run(most)
    query = (
        "SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY early ORDER BY total DESC, shop) AS place "
        "FROM {totals}) WHERE place = 1 ORDER BY total, shop LIMIT 1"
    )
    epochs = [each.epoch for each in stream.history().manifest().retained]
    for number, epoch in enumerate(epochs):
        [wanted] = in_batch(spark, EPOCHS[: number + 1], query)
        assert stream.rows(epoch) == [{name: wanted[name] for name in ("shop", "early", "total")}]
