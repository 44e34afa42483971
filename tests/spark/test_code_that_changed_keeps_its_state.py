"""Changed aggregates, wider columns and another time to live: the state goes on, without the old input files."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from dagster_ckpt import agg, tumbling
from dagster_ckpt import session as session_window
from dagster_ckpt.errors import IncompatibleStateError
from dagster_ckpt.runtime.declared.stream import Stream
from dagster_ckpt.runtime.driver.stream_job import JobHooks
from dagster_ckpt.runtime.plans.compiler import stream_of_sql
from tests.spark import input_files
from tests.spark.streams import StreamUnderTest

pytestmark = pytest.mark.slow

OLD = pa.table(
    {"k": ["a", "a", "b"], "v": pa.array([1, 2, 3], pa.int32()), "at": pa.array([1, 2, 3], pa.timestamp("s"))}
)
NEW = pa.table({"k": ["a", "c"], "v": pa.array([2**40, 5], pa.int64()), "at": pa.array([4, 5], pa.timestamp("s"))})
SQL_OLD, SQL_NEW = "k string, v int, at timestamp", "k string, v bigint, at timestamp"
Make = Callable[[Stream], Stream]


def reading(session: SparkSession, folder: Path, schema: str) -> Stream:
    return Stream(session.readStream.schema(schema).parquet(folder.as_uri()))


def changed(spark: SparkSession, place: Path, before: Make, after: Make) -> StreamUnderTest:
    """A stream that has read the old rows, which are no more, and then the new ones with other code."""
    stream, folder = StreamUnderTest(spark, place), place / "rows"
    folder.mkdir()
    old = input_files.drop(folder, 0, OLD)
    stream.run(lambda session: before(reading(session, folder, SQL_OLD)))
    old.unlink()
    input_files.drop(folder, 1, NEW)
    stream.run(lambda session: after(reading(session, folder, SQL_NEW)))
    return stream


def by_key(stream: StreamUnderTest) -> dict[object, dict[str, object]]:
    return {row.pop("k"): row for row in stream.rows()}


def test_aggregates_change_and_a_column_gets_wider(spark: SparkSession, tmp_path: Path) -> None:
    stream = changed(
        spark,
        tmp_path,
        lambda rows: rows.key_by("k").aggregate(n=agg.count(), all=agg.sum("v"), most=agg.max("v")),
        lambda rows: rows.key_by("k").aggregate(
            total=agg.sum("v"), greatest=agg.max("v"), least=agg.min("v", since="now"), now=agg.count(since="now")
        ),
    )
    assert by_key(stream) == {
        "a": {"total": 2**40 + 3, "greatest": 2**40, "least": 2**40, "now": 1},
        "b": {"total": 3, "greatest": 3, "least": None, "now": None},
        "c": {"total": 5, "greatest": 5, "least": 5, "now": 1},
    }


def test_an_aggregate_goes_back_over_a_rebuild_to_what_it_had_counted(spark: SparkSession, tmp_path: Path) -> None:
    stream, folder = StreamUnderTest(spark, tmp_path), tmp_path / "rows"
    folder.mkdir()

    def code(**more: agg.Aggregation) -> Callable[[SparkSession], Stream]:
        return lambda session: reading(session, folder, "k string, v long").key_by("k").aggregate(n=agg.count(), **more)

    def drop(number: int, value: int) -> None:
        input_files.drop(folder, number, pa.table({"k": ["a"], "v": [value]}))

    later = code(most=agg.max("v", since="now"))
    drop(0, 100)
    stream.run(code())
    drop(1, 50)
    epoch = stream.run(later).manifest.epoch
    assert by_key(stream) == {"a": {"n": 2, "most": 50}}
    assert stream.rebuild(code(most=agg.max("v", since="now"), least=agg.min("v")))
    assert by_key(stream) == {"a": {"n": 2, "most": 100, "least": 50}}
    drop(2, 5)
    stream.run(later, from_epoch=epoch)
    assert by_key(stream) == {"a": {"n": 3, "most": 50}}


@pytest.mark.long
def test_sessions_that_merge_over_the_change(spark: SparkSession, tmp_path: Path) -> None:
    def sessions(rows: Stream, **more: agg.Aggregation) -> Stream:
        timed = rows.with_watermark("at", "1 hour").key_by("k").window(session_window("10 minutes"), early=True)
        return timed.aggregate(n=agg.count(), **more)

    stream = changed(spark, tmp_path, sessions, lambda rows: sessions(rows, now=agg.sum("v", since="now")))
    assert {row["k"]: (row["n"], row["now"]) for row in stream.rows()} == {"a": (3, 2**40), "b": (1, None), "c": (1, 5)}


def mean(rows: Stream) -> Stream:
    return rows.key_by("k").aggregate(mean=agg.avg("v"))


def mean_by_window(rows: Stream) -> Stream:
    timed = rows.with_watermark("at", "1 hour").key_by("k").window(tumbling("1 hour"), early=True)
    return timed.aggregate(mean=agg.avg("v"))


def mean_by_session(rows: Stream) -> Stream:
    timed = rows.with_watermark("at", "1 hour").key_by("k").window(session_window("10 minutes"), early=True)
    return timed.aggregate(mean=agg.avg("v"))


def mean_in_sql(rows: Stream) -> Stream:
    return query(rows, "k, avg(v) AS mean")


def mean_of_changes(rows: Stream) -> Stream:
    """Rows of the first step are taken back."""
    return rows.key_by("k").aggregate(v=agg.max("v")).key_by("k").aggregate(mean=agg.avg("v"))


WIDE_MEANS: dict[object, object] = {"a": (2**40 + 3) / 3, "b": 3.0, "c": 5.0}


@pytest.mark.long
@pytest.mark.parametrize(
    ("make", "means"),
    [
        (mean, WIDE_MEANS),
        (mean_by_window, WIDE_MEANS),
        (mean_by_session, WIDE_MEANS),
        (mean_in_sql, WIDE_MEANS),
        (mean_of_changes, {**WIDE_MEANS, "a": 2.0**40}),
    ],
)
def test_a_mean_goes_on_when_its_column_gets_wider(
    make: Make, means: dict[object, object], spark: SparkSession, tmp_path: Path
) -> None:
    stream = changed(spark, tmp_path, make, make)
    assert {row["k"]: row["mean"] for row in stream.rows()} == means


def test_a_rollback_over_a_wider_column_goes_on_too(spark: SparkSession, tmp_path: Path) -> None:
    stream = changed(spark, tmp_path, mean, mean)
    first = min(each.epoch for each in stream.history().epochs() if each.rows_in)
    assert by_key(stream)["a"] == {"mean": (2**40 + 3) / 3}
    stream.run_id = "another"
    stream.run(lambda session: mean(reading(session, tmp_path / "rows", SQL_NEW)), from_epoch=first)
    assert {name: row["mean"] for name, row in by_key(stream).items()} == WIDE_MEANS
    assert {row["k"]: row["mean"] for row in stream.rows(first)} == {"a": 1.5, "b": 3.0}


def test_a_key_lives_longer(spark: SparkSession, tmp_path: Path) -> None:
    def living(rows: Stream, time: str) -> Stream:
        timed = rows.with_watermark("at", "0 seconds").key_by("k", expire_after=time)
        return timed.aggregate(total=agg.sum("v"))

    stream = changed(spark, tmp_path, lambda rows: living(rows, "1 second"), lambda rows: living(rows, "1 hour"))
    assert by_key(stream)["b"] == {"total": 3}


def test_what_needs_the_past_says_what_can_be_done(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(IncompatibleStateError, match=r'_max\(v\), which needs all rows.*since="now" begins'):
        changed(
            spark,
            tmp_path,
            lambda rows: rows.key_by("k").aggregate(n=agg.count()),
            lambda rows: rows.key_by("k").aggregate(n=agg.count(), most=agg.max("v")),
        )


def query(rows: Stream, select: str, condition: str = "") -> Stream:
    rows.frame.createOrReplaceTempView("rows")
    return Stream(rows.frame.sparkSession.sql(f"SELECT {select} FROM rows GROUP BY k{condition}"))


@pytest.mark.parametrize("condition", ["", " HAVING count(*) > 0"])
def test_a_querys_aggregates_change(spark: SparkSession, tmp_path: Path, condition: str) -> None:
    stream = changed(
        spark,
        tmp_path,
        lambda rows: query(rows, "k, count(*) AS n, max(v) AS most, sum(v) AS total", condition),
        lambda rows: query(rows, "sum(v) AS all, k, count(v) AS rows", condition),
    )
    assert by_key(stream) == {
        "a": {"all": 2**40 + 3, "rows": 3},
        "b": {"all": 3, "rows": 1},
        "c": {"all": 5, "rows": 1},
    }


PAIRS = "SELECT x.k, {} FROM rows x JOIN rows y ON x.k = y.k GROUP BY x.k"
COUNTED = "SELECT k, count(*) AS v, min(at) AS at FROM rows GROUP BY k"
BOTH = f"SELECT k, {{}} FROM (SELECT k, CAST(v AS string) AS v, at FROM rows UNION ALL {COUNTED}) GROUP BY k"


@pytest.mark.long
@pytest.mark.parametrize(
    ("text", "before", "after", "found"),
    [
        (PAIRS, "count(*) AS n, sum(y.v) AS s, sum(x.v) AS more", "sum(y.v) AS s, count(*) AS n", (3 * 2**40 + 9, 9)),
        (BOTH, "count(v) AS n, count(at) AS times", "count(v) AS rows", (4,)),
    ],
    ids=["join", "union"],
)
def test_an_aggregate_of_a_join_or_a_union_is_dropped(
    spark: SparkSession, tmp_path: Path, text: str, before: str, after: str, found: tuple[int, ...]
) -> None:
    """The steps below lose the column too."""

    def stream_of(rows: Stream, columns: str) -> Stream:
        rows.frame.createOrReplaceTempView("rows")
        return Stream(rows.frame.sparkSession.sql(text.format(columns)))

    stream = changed(spark, tmp_path, lambda rows: stream_of(rows, before), lambda rows: stream_of(rows, after))
    assert tuple(by_key(stream)["a"].values()) == found


def test_an_expression_below_a_querys_aggregate_is_known_by_what_it_is(spark: SparkSession, tmp_path: Path) -> None:
    stream = changed(
        spark,
        tmp_path,
        lambda rows: query(rows, "k, sum(v + 1) AS one, sum(v * 2) AS two"),
        lambda rows: query(rows, "sum(v * 2) AS two, k, avg(v * 2) AS mean"),
    )
    total = 2 * 2**40 + 6
    assert by_key(stream) == {
        "a": {"two": total, "mean": total / 3},
        "b": {"two": 6, "mean": 6.0},
        "c": {"two": 10, "mean": 10.0},
    }


def test_another_expression_below_a_querys_aggregate_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(IncompatibleStateError, match=r"no _sum\(\(v \* 2\)\), which needs all rows"):
        changed(
            spark,
            tmp_path,
            lambda rows: query(rows, "k, sum(v + 1) AS s"),
            lambda rows: query(rows, "k, sum(v * 2) AS s"),
        )


def test_a_function_with_another_body_is_named_until_it_has_made_an_epoch(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stream, folder, named = StreamUnderTest(spark, tmp_path), tmp_path / "rows", list[str]()
    folder.mkdir()

    def run(function: Callable[[int], int], file: int | None = None) -> None:
        def sums(session: SparkSession) -> Stream:
            session.udf.register("weighed", function, "long")
            rows = session.readStream.schema("k string, v long").parquet(folder.as_uri())
            rows.createOrReplaceTempView("rows")
            return stream_of_sql(session, "SELECT k, sum(weighed(v)) AS n FROM rows GROUP BY k")

        if file is not None:
            input_files.drop(folder, file, pa.table({"k": ["a"], "v": [10]}))
        named.clear()
        stream.run(sums, hooks=JobHooks(on_changed_functions=named.extend))

    run(lambda v: v, 0)
    run(lambda v: v, 1)
    assert not named
    for file in (None, 2):  # a run without an epoch says it, and so does the next one
        run(lambda v: 2 * v, file)
        assert named == ["weighed"]
    assert "dagster-ckpt rebuild" in caplog.text
    run(lambda v: 2 * v, 3)
    assert not named
    assert stream.rows() == [{"k": "a", "n": 10 + 10 + 20 + 20}]
