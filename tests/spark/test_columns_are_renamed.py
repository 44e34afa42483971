"""Columns that the code has under new names: the state goes on under the old ones, and the table has the new ones."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from dagster_ckpt import agg, over, tumbling
from dagster_ckpt.errors import IncompatibleStateError, InvalidPipelineError
from dagster_ckpt.runtime.declared.stream import Stream
from tests.spark import input_files
from tests.spark.streams import StreamUnderTest

pytestmark = pytest.mark.slow

SQL = "carrier string, delay int, version int"
Make = Callable[[Stream], Stream]


def flights(*rows: tuple[str, int, int]) -> pa.Table:
    carriers, delays, versions = zip(*rows, strict=True)
    return pa.table(
        {"carrier": carriers, "delay": pa.array(delays, pa.int32()), "version": pa.array(versions, pa.int32())}
    )


class Changing:
    """A stream whose code changes, over a folder whose old files are gone."""

    def __init__(self, spark: SparkSession, place: Path) -> None:
        self.stream = StreamUnderTest(spark, place)
        self.folder = place / "rows"
        self.folder.mkdir()
        self.files = 0

    def run(self, make: Make, *rows: tuple[str, int, int], renamed: dict[str, str] | None = None, **how: Any) -> None:
        for old in self.folder.glob("*.parquet"):
            old.unlink()
        input_files.drop(self.folder, self.files, flights(*rows))
        self.files += 1
        self.stream.renamed = renamed or {}

        def function(session: SparkSession) -> Stream:
            return make(Stream(session.readStream.schema(SQL).parquet(self.folder.as_uri())))

        self.stream.run(function, **how)

    def rows(self) -> list[dict[str, object]]:
        return sorted(self.stream.rows(), key=lambda row: [str(each) for each in row.values()])


def as_airline(rows: Stream) -> Stream:
    return rows.select("carrier AS airline", "delay", "version")


def newest(rows: Stream) -> Stream:
    return rows.key_by("carrier").deduplicate("last", by="version")


def newest_of_airline(rows: Stream) -> Stream:
    return as_airline(rows).key_by("airline").deduplicate("last", by="version")


RENAMED = {"carrier": "airline"}


def test_rows_of_a_renamed_key_are_still_known(spark: SparkSession, tmp_path: Path) -> None:
    changing = Changing(spark, tmp_path)
    changing.run(newest, ("UA", 1, 1), ("AA", 2, 2))
    changing.run(newest_of_airline, ("UA", 3, 2), ("AA", 4, 1), ("DL", 5, 1), renamed=RENAMED)
    now = [
        {"airline": "AA", "delay": 2, "version": 2},
        {"airline": "DL", "delay": 5, "version": 1},
        {"airline": "UA", "delay": 3, "version": 2},
    ]
    assert changing.rows() == now
    # The manifest remembers it, with or without the option.
    changing.run(newest_of_airline, ("DL", 6, 0), renamed=RENAMED)
    changing.run(newest_of_airline, ("DL", 6, 0))
    assert changing.rows() == now


def test_a_rollback_over_a_rename(spark: SparkSession, tmp_path: Path) -> None:
    changing = Changing(spark, tmp_path)
    changing.run(lambda rows: rows.key_by("carrier").aggregate(n=agg.count()), ("UA", 1, 1), ("AA", 2, 2))
    before = changing.stream.history().latest().epoch
    changing.stream.history().pin(before, "before")
    counted = lambda rows: as_airline(rows).key_by("airline").aggregate(n=agg.count())  # noqa: E731
    changing.run(counted, ("UA", 3, 2), renamed=RENAMED)
    history = changing.stream.history()
    assert changing.rows() == [{"airline": "AA", "n": 1}, {"airline": "UA", "n": 2}]
    assert history.read(before).column_names == ["carrier", "n"]
    assert history.get({"airline": ["UA"]}).to_pylist() == [{"airline": "UA", "n": 2}]
    changes = history.changes(after=before).drop_columns(["_epoch"]).to_pylist()
    assert {(row["airline"], row["n"], row["_change_type"]) for row in changes} == {
        ("UA", 1, "update_preimage"),
        ("UA", 2, "update_postimage"),
    }
    assert set(history.changes(after=0)["airline"].to_pylist()) == {"AA", "UA"}, "also of the epochs before"
    # The run goes back by itself: the newest manifest still knows the name.
    changing.run(counted, ("DL", 3, 2), from_epoch=before)
    assert changing.rows() == [{"airline": "AA", "n": 1}, {"airline": "DL", "n": 1}, {"airline": "UA", "n": 1}]
    # The command shows the epoch as it was: then the option is needed again.
    history.rollback(before)
    assert changing.rows() == [{"carrier": "AA", "n": 1}, {"carrier": "UA", "n": 1}]
    with pytest.raises(IncompatibleStateError, match="the key was carrier, now it is airline"):
        changing.run(counted, ("DL", 3, 2))
    changing.run(counted, ("DL", 3, 2), renamed=RENAMED)
    assert changing.rows() == [{"airline": "AA", "n": 1}, {"airline": "DL", "n": 1}, {"airline": "UA", "n": 1}]


def best(rows: Stream, key: str) -> Stream:
    return rows.key_by(key).top(1, by="delay desc", rank="place").where("place > 0")


def before_it(rows: Stream, key: str) -> Stream:
    return rows.key_by(key).over("version asc", before=over.lag("delay"))


def with_itself(rows: Stream, key: str) -> Stream:
    newest = rows.key_by(key).deduplicate("last", by="version")
    totals = rows.key_by(key).aggregate(total=agg.sum("delay"))
    return newest.key_by(key).join(totals.key_by(key))


def of_all(rows: Stream, key: str) -> Stream:
    return rows.select(key, "delay").distinct().key_by("delay").aggregate(**{key: agg.max(key)})


@pytest.mark.long
@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (best, [("AA", 2, 1, 1), ("UA", 3, 2, 1)]),
        (before_it, [("AA", 2, 1, None), ("UA", 1, 1, None), ("UA", 3, 2, 1)]),
        (with_itself, [("AA", 2, 1, 2), ("UA", 3, 2, 4)]),
        (of_all, [(1, "UA"), (2, "AA"), (3, "UA")]),
    ],
)
def test_steps_that_keep_rows(
    spark: SparkSession, tmp_path: Path, make: Callable[[Stream, str], Stream], expected: list[tuple[object, ...]]
) -> None:
    changing = Changing(spark, tmp_path)
    changing.run(lambda rows: make(rows, "carrier"), ("UA", 1, 1), ("AA", 2, 1))
    renamed = lambda rows: make(as_airline(rows), "airline")  # noqa: E731
    changing.run(renamed, ("UA", 3, 2), renamed=RENAMED)
    assert "airline" in changing.rows()[0]
    assert [tuple(row.values()) for row in changing.rows()] == expected
    changing.run(renamed, ("UA", 0, 0))
    assert len(changing.rows()) == len(expected) + (make in (before_it, of_all))


def test_a_step_is_added_behind_a_renamed_one(spark: SparkSession, tmp_path: Path) -> None:
    """The rows that the new step begins with have the names that the code has."""
    changing = Changing(spark, tmp_path)
    changing.run(newest, ("UA", 1, 1), ("AA", 2, 2))
    changing.run(newest_of_airline, ("UA", 3, 2), renamed=RENAMED)
    more = lambda rows: newest_of_airline(rows).key_by("airline").aggregate(most=agg.max("delay"))  # noqa: E731
    changing.run(more, ("DL", 5, 1), restart_steps=True)
    assert changing.rows() == [
        {"airline": "AA", "most": 2},
        {"airline": "DL", "most": 5},
        {"airline": "UA", "most": 3},
    ]


@pytest.mark.long
def test_a_column_that_a_step_only_reads_is_renamed_twice(spark: SparkSession, tmp_path: Path) -> None:
    def mean_of(name: str) -> Make:
        def make(rows: Stream) -> Stream:
            known = rows.select("carrier", f"delay AS {name}", "version").key_by("carrier", "version")
            return known.deduplicate("last", by=name).key_by("carrier").aggregate(mean=agg.avg(name))

        return make

    changing = Changing(spark, tmp_path)
    changing.run(mean_of("delay"), ("UA", 1, 1))
    changing.run(mean_of("late"), ("UA", 2, 2), renamed={"delay": "late"})
    changing.run(mean_of("late"), ("UA", 3, 3))
    changing.run(mean_of("minutes"), ("UA", 8, 3), ("AA", 4, 1), renamed={"late": "minutes"})
    assert changing.rows() == [{"carrier": "AA", "mean": 4.0}, {"carrier": "UA", "mean": 11 / 3}]


@pytest.mark.long
def test_late_rows_have_the_new_name(spark: SparkSession, tmp_path: Path) -> None:
    changing = Changing(spark, tmp_path)

    def last(rows: Stream, key: str) -> Stream:
        timed = rows.with_column("at", "timestamp_seconds(version)").with_watermark("at", "0 seconds")
        return timed.key_by(key).deduplicate("last", expire_after="10 seconds", late="keep")

    changing.run(lambda rows: last(rows, "carrier"), ("UA", 1, 1), ("AA", 2, 100))
    changing.run(lambda rows: last(rows, "carrier"), ("UA", 5, 5))
    changing.run(lambda rows: last(as_airline(rows), "airline"), ("DL", 6, 6), renamed=RENAMED)
    late = changing.stream.history().late_rows().select(["airline", "delay"]).to_pylist()
    assert sorted(late, key=repr) == [{"airline": "DL", "delay": 6}, {"airline": "UA", "delay": 5}]


def test_a_rename_that_cannot_be_meant(spark: SparkSession, tmp_path: Path) -> None:
    changing = Changing(spark, tmp_path)
    changing.run(newest, ("UA", 1, 1))
    for renamed, says in (
        ({"carrier": "airlines"}, "the code's table has no column 'airlines'.* Did you mean 'airline'"),
        ({"carriers": "airline"}, "the stream's table has no column 'carriers'.* Did you mean 'carrier'"),
    ):
        with pytest.raises(InvalidPipelineError, match=f"{says}.*asset=flights/delays"):
            changing.run(newest_of_airline, ("UA", 3, 2), renamed=renamed)
    with pytest.raises(IncompatibleStateError, match=r'set renamed=\{"old": "new"\}'):
        changing.run(newest_of_airline, ("UA", 3, 2))


def test_a_rename_keeps_the_rule_for_types(spark: SparkSession, tmp_path: Path) -> None:
    changing = Changing(spark, tmp_path)
    changing.run(newest, ("UA", 1, 1))

    def shorter(rows: Stream) -> Stream:
        return newest(rows.select("carrier", "CAST(delay AS string) AS late", "version"))

    with pytest.raises(IncompatibleStateError, match="column delay was int32, now it is string"):
        changing.run(shorter, ("UA", 3, 2), renamed={"delay": "late"})


def test_files_of_an_append_only_table(spark: SparkSession, tmp_path: Path) -> None:
    changing = Changing(spark, tmp_path)
    changing.run(lambda rows: rows, ("UA", 1, 1))
    before = changing.stream.history().latest().epoch
    changing.run(as_airline, ("AA", 2, 2), renamed=RENAMED)
    changing.run(as_airline, ("DL", 3, 3))
    history = changing.stream.history()
    assert [row["airline"] for row in changing.rows()] == ["AA", "DL", "UA"]
    assert history.changes(after=0)["airline"].to_pylist() == ["UA", "AA", "DL"]
    assert history.read(before).to_pylist() == [{"carrier": "UA", "delay": 1, "version": 1}]
    twice = lambda rows: rows.select("carrier AS line", "delay", "version")  # noqa: E731
    changing.run(twice, ("B6", 4, 4), renamed={"airline": "line"})
    assert [row["line"] for row in changing.rows()] == ["AA", "B6", "DL", "UA"]
    again = lambda rows: rows.select("carrier AS line", "delay", "'new' AS carrier")  # noqa: E731
    changing.run(again, ("F9", 6, 6))
    assert [(row["line"], row["carrier"]) for row in changing.rows()][-2:] == [("F9", "new"), ("UA", None)]
    text = lambda rows: rows.select("carrier AS line", "CAST(delay AS string) AS late")  # noqa: E731
    with pytest.raises(IncompatibleStateError, match="column late was int32, now it is string"):
        changing.run(text, ("B6", 4, 4), renamed={"delay": "late"})
    changing.run(lambda rows: rows, ("WN", 5, 5), from_epoch=before)
    assert [row["carrier"] for row in changing.rows()] == ["UA", "WN"]


def test_where_a_name_has_become_another_columns_an_earlier_epoch_has_its_own(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The code of then goes back to an epoch of then; the newest code goes back to it under the newest names."""
    changing = Changing(spark, tmp_path)

    def late(rows: Stream) -> Stream:
        return rows.select("carrier", "delay AS late")

    def other(rows: Stream) -> Stream:
        return rows.select("carrier", "delay AS late", "-delay AS delay")

    changing.run(lambda rows: rows.select("carrier", "delay"), ("UA", 1, 1))
    first = changing.stream.history().latest().epoch
    changing.run(lambda rows: rows.select("carrier", "delay"), ("AA", 2, 2))
    second = changing.stream.history().latest().epoch
    changing.run(late, ("B6", 5, 5), renamed={"delay": "late"})
    changing.run(other, ("DL", 3, 3))
    assert changing.rows() == [
        {"carrier": "AA", "late": 2, "delay": None},
        {"carrier": "B6", "late": 5, "delay": None},
        {"carrier": "DL", "late": 3, "delay": -3},
        {"carrier": "UA", "late": 1, "delay": None},
    ]
    changing.run(other, ("WN", 4, 4), from_epoch=second)
    there = [(row["carrier"], row["late"], row["delay"]) for row in changing.rows()]
    assert {("UA", 1, None), ("WN", 4, -4)} <= {*there}
    changing.stream.root_run = "again"
    changing.run(lambda rows: rows.select("carrier", "delay"), ("B6", 5, 5), from_epoch=first)
    assert {("UA", 1), ("B6", 5)} <= {(row["carrier"], row["delay"]) for row in changing.rows()}


@pytest.mark.long
@pytest.mark.parametrize("selected", [False, True])
def test_files_of_a_step_with_state(spark: SparkSession, tmp_path: Path, selected: bool) -> None:
    changing = Changing(spark, tmp_path)

    def closed(rows: Stream, key: str, **counted: agg.Aggregation) -> Stream:
        timed = rows.with_column("at", "timestamp_seconds(version)").with_watermark("at", "0 seconds")
        table = timed.key_by(key).window(tumbling("10 seconds")).aggregate(**counted)
        return table.select(key, *counted) if selected else table

    changing.run(lambda rows: closed(rows, "carrier", n=agg.count()), ("UA", 1, 1), ("AA", 2, 11), ("AA", 2, 21))
    now = lambda rows: closed(as_airline(rows), "airline", flights=agg.count())  # noqa: E731
    changing.run(now, ("AA", 3, 22), ("DL", 4, 31), renamed={**RENAMED, "n": "flights"})
    changing.run(now, ("DL", 4, 41))
    rows = changing.stream.history().read().select(["airline", "flights"]).to_pylist()
    assert sorted((row["airline"], row["flights"]) for row in rows) == [("AA", 1), ("AA", 2), ("DL", 1), ("UA", 1)]
    assert "carrier" not in changing.rows()[0]


def test_an_alias_in_a_query_whose_table_only_grows(spark: SparkSession, tmp_path: Path) -> None:
    changing = Changing(spark, tmp_path)

    def distinct(rows: Stream, select: str) -> Stream:
        rows.frame.createOrReplaceTempView("flights")
        return Stream(rows.frame.sparkSession.sql(f"SELECT DISTINCT {select} FROM flights"))

    changing.run(lambda rows: distinct(rows, "carrier, delay"), ("UA", 1, 1), ("AA", 2, 2))
    changing.run(lambda rows: distinct(rows, "carrier AS airline, delay"), ("AA", 2, 3), ("DL", 4, 4), renamed=RENAMED)
    assert sorted((row["airline"], row["delay"]) for row in changing.rows()) == [("AA", 2), ("DL", 4), ("UA", 1)]


def test_a_rollback_to_before_a_rebuild_that_renamed_a_column(spark: SparkSession, tmp_path: Path) -> None:
    stream, folder = StreamUnderTest(spark, tmp_path), tmp_path / "rows"
    folder.mkdir()

    def code(*columns: str) -> Callable[[SparkSession], Stream]:
        def function(session: SparkSession) -> Stream:
            return newest(Stream(session.readStream.schema(SQL).parquet(folder.as_uri())).select(*columns))

        return function

    before, after = code("carrier", "delay", "version"), code("carrier", "delay AS late", "version")
    input_files.drop(folder, 0, flights(("UA", 1, 1), ("AA", 2, 1)))
    epoch = stream.run(before).manifest.epoch
    assert stream.rebuild(after)
    input_files.drop(folder, 1, flights(("UA", 3, 2)))
    stream.run_id = "back"
    with pytest.raises(IncompatibleStateError, match=r"has no late.*if a column has another name, set renamed"):
        stream.run(after, from_epoch=epoch)
    stream.renamed = {"delay": "late"}
    stream.run(after, from_epoch=epoch)
    rows = [{"carrier": "AA", "late": 2, "version": 1}, {"carrier": "UA", "late": 3, "version": 2}]
    assert stream.rows() == rows
    stream.renamed, stream.run_id = {}, "on"
    stream.run(after)
    assert stream.rows() == rows, "the newest manifest remembers the name"
