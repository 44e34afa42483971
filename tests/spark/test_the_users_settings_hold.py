"""A stream's session has the user's settings, including those set after Spark was started."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from dagster_ckpt import agg
from dagster_ckpt.errors import CheckpointDeclinedError, InvalidPipelineError
from dagster_ckpt.runtime.declared.stream import Stream
from dagster_ckpt.runtime.spark.session import open_session
from tests.spark.input_files import drop
from tests.spark.streams import FAST, StreamUnderTest

ANSI = "spark.sql.ansi.enabled"
CASE = "spark.sql.caseSensitive"
ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
RULES = "spark.sql.optimizer.excludedRules"
LARGE = "spark.sql.execution.arrow.useLargeVarTypes"


@pytest.fixture
def user(spark_of_all: SparkSession) -> SparkSession:
    """The user's session, which may be changed."""
    return spark_of_all.newSession()


@pytest.fixture
def stream(user: SparkSession, tmp_path: Path) -> StreamUnderTest:
    return StreamUnderTest(user, tmp_path)


def test_what_was_set_or_unset_on_the_users_session_is_so_on_the_streams(user: SparkSession) -> None:
    user.conf.set(ANSI, "false")
    user.conf.set("spark.sql.shuffle.partitions", "7")
    user.conf.set("my.own.setting", "4 -> 2\n")
    user.conf.unset("spark.sql.session.timeZone")
    user.conf.set(RULES, "a.Rule, another.Rule")
    opened = open_session(user)
    own = {name: value for name, value in opened.conf.getAll.items() if user.conf.getAll.get(name) != value}
    assert set(own) == {
        RULES,
        "parquet.filter.dictionary.enabled",
        "spark.sql.adaptive.enabled",
        "spark.sql.streaming.checkpointFileManagerClass",
        "spark.sql.streaming.fileSource.log.compactInterval",
        "spark.sql.streaming.fileSource.log.deletion",
    }
    assert opened.conf.getAll[RULES].split(",")[:2] == ["a.Rule", "another.Rule"]
    assert user.conf.getAll.keys() <= opened.conf.getAll.keys()
    assert "spark.sql.session.timeZone" not in opened.conf.getAll
    opened.conf.set(ANSI, "true")
    assert user.conf.get(ANSI) == "false", "the user's session is left alone"


def test_a_session_whose_builder_set_what_only_a_context_reads_is_taken_over_too(spark_of_all: SparkSession) -> None:
    built = spark_of_all.newSession()
    built._jsparkSession.sessionState().conf().setConfString("spark.driver.bindAddress", "127.0.0.1")
    assert open_session(built).conf.get("spark.driver.bindAddress") == "127.0.0.1"


@pytest.mark.parametrize("ansi", ["true", "false"])
def test_ansi_mode_is_the_users(stream: StreamUnderTest, user: SparkSession, inbox: Path, ansi: str) -> None:
    user.conf.set(ANSI, ansi)
    drop(inbox, 0, pa.table({"k": ["1", "x"]}))

    def function(spark: SparkSession) -> Stream:
        return Stream(spark.readStream.schema("k string").parquet(str(inbox)).selectExpr("int(k) AS n"))

    if ansi == "true":
        with pytest.raises(CheckpointDeclinedError, match="CAST_INVALID_INPUT"):
            stream.run(function, FAST)
    else:
        stream.run(function)
        assert stream.rows() == [{"n": 1}, {"n": None}]


def test_case_sensitivity_is_the_users(stream: StreamUnderTest, user: SparkSession, inbox: Path) -> None:
    user.conf.set(CASE, "true")
    drop(inbox, 0, pa.table({"k": ["a"], "K": ["b"]}))

    def function(spark: SparkSession) -> Stream:
        rows = spark.readStream.schema("k string, K string").parquet(str(inbox))
        return Stream(rows.selectExpr("k AS low", "K AS high")).key_by("high").aggregate(n=agg.count())

    stream.run(function)
    assert stream.rows() == [{"high": "b", "n": 1}]

    def both(spark: SparkSession) -> Stream:
        return Stream(spark.readStream.schema("k string, K string").parquet(str(inbox)))

    other = StreamUnderTest(user, stream.root, "both")
    with pytest.raises(InvalidPipelineError, match=r"not case-sensitive could not tell .*apart.*columns=k, K"):
        other.run(both)
    assert not other.folder.exists(), "readers of other sessions could not choose between the two"


def test_the_users_functions_get_arrow_as_the_user_has_set_it(
    stream: StreamUnderTest, user: SparkSession, inbox: Path
) -> None:
    user.conf.set(LARGE, "true")
    user.conf.set(ROWS, "2")
    user.conf.set(BYTES, "1m")
    drop(inbox, 0, pa.table({"k": ["a", "b", "b", "c", "c"]}))

    def seen(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows = pa.array([f"{batch.num_rows} {batch.schema.field('k').type}"] * batch.num_rows, pa.large_string())
            yield pa.record_batch({"k": batch["k"], "seen": rows})

    def function(spark: SparkSession) -> Stream:
        rows = spark.readStream.schema("k string").parquet(str(inbox)).mapInArrow(seen, "k string, seen string")
        return (
            Stream(rows.selectExpr("k", "seen", "array(named_struct('s', seen)) AS nested")).key_by("k").deduplicate()
        )

    stream.run(function)
    assert [row["k"] for row in stream.rows()] == ["a", "b", "c"]
    assert {row["seen"] for row in stream.rows()} <= {"2 large_string", "1 large_string"}
    assert stream.table().schema.field("k").type == pa.string()
    other = StreamUnderTest(user, stream.root, "grows")
    other.run(lambda spark: Stream(function(spark).frame))
    assert other.table().num_rows == 5
