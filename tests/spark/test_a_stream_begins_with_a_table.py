"""`Stream(df, initial=past)`: the first epoch is made of a table, and the source follows."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from dagster_ckpt import agg
from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.runtime.declared.stream import Stream
from dagster_ckpt.storage.writer.stream_writer import StreamWriter
from tests.spark.streams import Function, StreamUnderTest
from tests.spark.test_several_steps import Crash, drop

pytestmark = pytest.mark.slow

PAST = [("o1", "a", 5), ("o2", "b", 7), ("o3", "a", 1)]
LATER = [("o3", "a", 1), ("o4", "c", 2), ("o5", "a", 100)]
Steps = Callable[[Stream], Stream]


def rows_of(session: SparkSession, folder: Path, past: list[tuple[str, str, int]] | None = None) -> Stream:
    schema = "order string, shop string, amount long"
    reader = session.readStream.schema(schema).option("maxFilesPerTrigger", 1)
    # In another order: columns go by their names.
    initial = None if past is None else session.createDataFrame(past, schema).select("amount", "order", "shop")
    return Stream(reader.parquet(str(folder)), initial=initial)


def totals(rows: Stream) -> Stream:
    return rows.where("amount > 1").key_by("shop").aggregate(total=agg.sum("amount"), orders=agg.count())


def of_distinct_orders(rows: Stream) -> Stream:
    once = rows.key_by("order").deduplicate().key_by("shop").aggregate(total=agg.sum("amount"))
    return once.aggregate(shops=agg.count(), all=agg.sum("total"))


def as_they_are(rows: Stream) -> Stream:
    return rows


@pytest.mark.parametrize("steps", [pytest.param(totals, marks=pytest.mark.long), of_distinct_orders, as_they_are])
def test_its_table_is_that_of_past_and_later_rows(spark: SparkSession, tmp_path: Path, steps: Steps) -> None:
    stream, all_at_once = StreamUnderTest(spark, tmp_path / "one"), StreamUnderTest(spark, tmp_path / "all")
    drop(tmp_path / "past", 0, PAST)
    drop(tmp_path / "later", 1, LATER)
    for _ in range(2):
        stream.run(lambda session: steps(rows_of(session, tmp_path / "later", PAST)))
    drop(tmp_path / "past", 1, LATER)
    all_at_once.run(lambda session: steps(rows_of(session, tmp_path / "past")))
    assert sorted(map(repr, stream.rows())) == sorted(map(repr, all_at_once.rows()))
    manifest = stream.epochs[0].manifest
    assert manifest.statistics.rows_in == len(PAST) - (steps is totals)
    assert [position.current for position in manifest.sources] == [None]
    assert stream.history().manifest().statistics.total_rows_in == (4 if steps is totals else 6)


def test_a_table_that_comes_too_late_is_not_left_out_in_silence(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stream = StreamUnderTest(spark, tmp_path)
    drop(tmp_path / "later", 0, LATER)
    stream.run(lambda session: totals(rows_of(session, tmp_path / "later")))
    assert "initial" not in caplog.text
    stream.run(lambda session: totals(rows_of(session, tmp_path / "later", PAST)))
    assert "its `initial` table is not read, since the stream has begun without it" in caplog.text
    caplog.clear()
    stream.run(lambda session: totals(rows_of(session, tmp_path / "later", PAST)), from_epoch=0)
    assert "initial" not in caplog.text
    assert {row["shop"]: row["orders"] for row in stream.rows()} == {"a": 2, "b": 1, "c": 1}


def test_a_crash_before_the_first_epoch_begins_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = StreamUnderTest(spark, tmp_path)
    (tmp_path / "later").mkdir()

    def run() -> None:
        stream.run(lambda session: totals(rows_of(session, tmp_path / "later", PAST)))

    def crash(*_: object) -> None:
        raise Crash

    with monkeypatch.context() as patch:
        patch.setattr(StreamWriter, "commit", crash)
        with pytest.raises(Crash):
            run()
    assert stream.history().latest().epoch == 0
    for _ in range(2):  # without any row of the source
        run()
    assert {row["shop"]: row["total"] for row in stream.rows()} == {"a": 5, "b": 7}
    stream.history().rollback(0)
    run()
    assert {row["shop"]: row["total"] for row in stream.rows()} == {"a": 5, "b": 7}


def test_a_table_that_has_grown_is_not_read_again(spark: SparkSession, tmp_path: Path) -> None:
    stream, archive, later = StreamUnderTest(spark, tmp_path / "s"), tmp_path / "archive", tmp_path / "later"
    drop(archive, 0, [("o0", "x", 100)])
    drop(later, 1, [("o1", "x", 5)])

    def from_archive(session: SparkSession, where: str = "true", more: str = "1 AS amount_too") -> Stream:
        schema = "order string, shop string, amount long"
        past = session.read.schema(schema).parquet(str(archive)).where(where).selectExpr("*", more)
        rows = session.readStream.schema(schema).parquet(str(later)).selectExpr("*", more)
        return totals(Stream(rows, initial=past))

    def shown() -> dict[object, object]:
        return {row["shop"]: row["total"] for row in stream.rows()}

    stream.run(from_archive)
    assert shown() == {"x": 105}
    newest = stream.history().latest().epoch
    drop(archive, 1, [("o1", "x", 5)])  # as it does each month
    refused = r"has other rows now.*rows=1 then, 2 now, files=1 then, 2 now, new_files=\[.*\]"
    with pytest.raises(InvalidPipelineError, match=refused):
        stream.run(from_archive, from_epoch=0)
    with pytest.raises(InvalidPipelineError, match=refused):
        stream.rebuild(from_archive)
    assert stream.history().latest().epoch == newest, "refused before anything was opened"
    then = partial(from_archive, where="order = 'o0'")
    assert stream.rebuild(then)
    assert shown() == {"x": 105}
    stream.history().rollback(0)
    with pytest.raises(InvalidPipelineError, match=r"has other rows now.*rows=1 then, 2 now"):
        stream.run(from_archive)
    assert stream.history().latest().epoch == 0
    with pytest.raises(InvalidPipelineError, match=r"rows=1 then, 1 now.*changed_columns=\['order', 'amount'\]"):
        stream.run(partial(from_archive, where="order = 'o1'"))
    stream.run(partial(then, more="2L AS another"))  # a column more, and one less
    assert shown() == {"x": 105}


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        (["order", "shop"], r"amount: int64, not missing"),
        (["order", "shop", "CAST(amount AS int) AS amount"], r"amount: int64, not int32"),
        (["*", "1 AS more"], r"more=\['more'\]"),
    ],
)
def test_other_columns_are_named(spark: SparkSession, tmp_path: Path, columns: list[str], told: str) -> None:
    def made(session: SparkSession) -> Stream:
        rows = rows_of(session, tmp_path, PAST)
        assert rows.initial is not None
        return totals(Stream(rows.frame, initial=rows.initial.selectExpr(*columns)))

    with pytest.raises(InvalidPipelineError, match=f"the initial rows have other columns.*{told}"):
        StreamUnderTest(spark, tmp_path).run(made)


def of_a_query(folder: Path, columns: list[str]) -> Function:
    def made(session: SparkSession) -> Stream:
        rows = rows_of(session, folder, PAST)
        assert rows.initial is not None
        orders = Stream(rows.frame, initial=rows.initial.selectExpr(*columns))
        return Stream(orders.to_df().groupBy("shop").agg(F.sum("amount").alias("total")))

    return made


def test_a_query_reads_its_columns_by_their_names(spark: SparkSession, tmp_path: Path) -> None:
    stream = StreamUnderTest(spark, tmp_path)
    stream.run(of_a_query(tmp_path, ["amount", "shop", "order"]))
    assert stream.rows() == [{"shop": "a", "total": 6}, {"shop": "b", "total": 7}]


def test_other_columns_are_named_behind_a_query_too(spark: SparkSession, tmp_path: Path) -> None:
    for columns in (["order", "shop"], ["order", "shop", "CAST(amount AS int) AS amount"], ["*", "1 AS more"]):
        with pytest.raises(InvalidPipelineError, match="the initial rows have other columns"):
            StreamUnderTest(spark, tmp_path).run(of_a_query(tmp_path, columns))


def test_a_stream_is_no_table(spark: SparkSession, tmp_path: Path) -> None:
    def made(session: SparkSession) -> Stream:
        rows = rows_of(session, tmp_path)
        return totals(Stream(rows.frame, initial=rows.frame))

    with pytest.raises(InvalidPipelineError, match="initial must be a batch DataFrame"):
        StreamUnderTest(spark, tmp_path).run(made)
