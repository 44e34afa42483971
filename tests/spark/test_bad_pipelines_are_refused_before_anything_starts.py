import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from dagster_ckpt import KeyedState, ProcessContext, ProcessFunction, agg, over, session, tumbling
from dagster_ckpt.errors import IncompatibleStateError, InvalidPipelineError
from dagster_ckpt.runtime.declared.stream import Stream
from dagster_ckpt.runtime.spark import session as sessions
from dagster_ckpt.runtime.spark.session import open_session
from dagster_ckpt.storage.stores.address import StoreAddress
from tests.spark.input_files import drop
from tests.spark.streams import FAST, StreamUnderTest

SCHEMA = "k string, v long, x double, at timestamp, many array<int>, span interval year"


def stream_of(spark: SparkSession, inbox: Path) -> Stream:
    return Stream(spark.readStream.schema(SCHEMA).parquet(str(inbox)))


def within(name: str, change: Callable[[Stream], Stream]) -> Callable[[Stream], Stream]:
    return lambda s: change(replace(s, frame=s.frame.selectExpr("v", f"{name} AS name")))


def with_collation(change: Callable[[Stream], Stream]) -> Callable[[Stream], Stream]:
    return lambda s: change(replace(s, frame=s.frame.selectExpr("k", "v", "k COLLATE UTF8_LCASE AS name")))


def timed(stream: Stream, key: str) -> Stream:
    return stream.with_watermark("at", "5s").key_by(key)


class Twice(ProcessFunction):
    """Its output has one name twice, as Spark reads names."""

    output = pa.schema([("k", pa.string()), ("K", pa.string())])

    def on_rows(self, rows: pa.Table, state: KeyedState, context: ProcessContext) -> None: ...


class Through(ProcessFunction):
    """Each row as it came."""

    output = pa.schema([("k", pa.string()), ("v", pa.int64())])

    def on_rows(self, rows: pa.Table, state: KeyedState, context: ProcessContext) -> pa.Table:
        return rows


COLLATED: dict[str, Callable[[Stream], Stream]] = {
    "key": lambda s: s.key_by("v", "name").aggregate(n=agg.count()),
    "least": lambda s: s.key_by("v").aggregate(n=agg.min("name")),
    "greatest": lambda s: s.key_by("v").aggregate(n=agg.max("name")),
    "first": lambda s: s.key_by("v").aggregate(n=agg.first("name", by="v")),
    "order": lambda s: s.key_by("v").aggregate(n=agg.last("k", by="name")),
    "order of the first rows": lambda s: s.key_by("v").top(1, by=["k asc", "`name` desc"]),
    "order of a partition": lambda s: s.key_by("v").over("name asc", n=over.row_number()),
    "least of a frame": lambda s: s.key_by("v").over("k asc", n=over.min("name")),
    "row of a set": lambda s: s.distinct(),
    "row of a union": lambda s: s.union(s),
    "row of an intersection": lambda s: s.intersect(s),
    "row of a difference": lambda s: s.subtract(s),
    "distinct value": lambda s: s.key_by("v").aggregate(n=agg.count_distinct("name")),
    "key of a deduplication": lambda s: s.key_by("name").deduplicate(),
}
WITHIN: dict[str, tuple[str, Callable[[Stream], Stream]]] = {
    "a distinct struct": ("struct(k COLLATE UTF8_LCASE AS f)", lambda s: s.distinct()),
    "a struct of an intersection": ("struct(1 AS n, k COLLATE UTF8_LCASE AS f)", lambda s: s.intersect(s)),
    "an array of a difference": ("array(k COLLATE UTF8_LCASE)", lambda s: s.subtract(s)),
    "a map of a distinct row": ("map(1, k COLLATE UTF8_LCASE)", lambda s: s.distinct()),
    "a distinct value": (
        "struct(k COLLATE UTF8_LCASE AS f)",
        lambda s: s.key_by("v").aggregate(n=agg.count_distinct("name")),
    ),
}
BINARY = r"`lower\(name\) COLLATE UTF8_BINARY`.* asset=flights/delays, column=name, collation=UTF8_LCASE"
REFUSED: dict[str, tuple[Callable[[Stream], Stream], str]] = {
    "unknown key": (lambda s: s.key_by("kk").aggregate(n=agg.count()), "no such column.*Did you mean 'k'"),
    "unknown column": (lambda s: s.key_by("k").aggregate(n=agg.sum("w")), "no such column.*column=w"),
    "floating key": (lambda s: s.key_by("x").aggregate(n=agg.count()), "key=x, type=double"),
    "nested key": (lambda s: s.key_by("many").aggregate(n=agg.count()), "key=many, type=list"),
    "sum of text": (lambda s: s.key_by("v").aggregate(n=agg.sum("k")), "column=k, type=string"),
    "keys alone": (lambda s: s.key_by("k"), r"keys alone do nothing.*asset=flights/delays, keys=k"),
    "event time that is no time": (lambda s: s.with_watermark("v", "5s"), "column=v, type=int64"),
    "unknown event time": (lambda s: s.with_watermark("when", "5s"), "no such column.*column=when"),
    "a watermark of Spark's": (
        lambda s: replace(s, frame=s.frame.selectExpr("*", "now() AS t").withWatermark("t", "5 seconds")),
        "step=withWatermark",
    ),
    "two columns of one name": (lambda s: replace(s, frame=s.frame.selectExpr("k", "v K")), "columns=k, K"),
    "a type Arrow lacks": (lambda s: s, "column=span, type=interval year"),
    "a variant": (
        lambda s: replace(s, frame=s.frame.selectExpr("k", "parse_json(k) AS j")),
        r"no VARIANT columns.*to_json\(j\).*asset=flights/delays, column=j, type=variant",
    ),
    "a variant within an array": (
        lambda s: replace(s, frame=s.frame.selectExpr("k", "array(parse_json(k)) AS j")).key_by("k").deduplicate(),
        "no VARIANT columns.*column=j, type=array<variant>",
    ),
    "a time of day": (
        lambda s: replace(s, frame=s.frame.selectExpr("k", "TIME '12:30:00' AS t")),
        r"no TIME columns.*CAST\(t AS STRING\).*column=t, type=time\(6\)",
    ),
    "a static frame": (lambda s: replace(s, frame=s.frame.sparkSession.range(3)), "spark.readStream, not spark.read"),
    "the hash's own name": (lambda s: replace(s, frame=s.frame.selectExpr("v _hash")), "column=_hash"),
    "the epoch's own name to Spark": (lambda s: replace(s, frame=s.frame.selectExpr("v _Epoch")), "column=_Epoch"),
    "keys of two types": (
        lambda s: timed(s, "k").interval_join(timed(s, "v"), "0s", "1s", "semi"),
        r"cast one of them. left=k \(string\), right=v \(int64\), operator=interval_join, asset=flights/delays",
    ),
    "bounds the wrong way round": (
        lambda s: timed(s, "k").interval_join(timed(s, "k"), "1s", "0s", "semi"),
        "exchange them. lower=1000000 us, upper=0 us, operator=interval_join, asset=flights/delays",
    ),
    "a window without an event time": (
        lambda s: s.key_by("k").window(tumbling("1s")).aggregate(n=agg.count()),
        "with_watermark.*operator=window, asset=flights/delays",
    ),
    "a sum of text in windows": (
        lambda s: timed(s, "v").window(session("1s")).aggregate(n=agg.sum("k")),
        "column=k, type=string, operator=window, asset=flights/delays",
    ),
    "a join without an event time": (
        lambda s: timed(s, "k").join(s.key_by("k"), "1s", "semi"),
        "with_watermark.*input=right.*operator=join, asset=flights/delays",
    ),
    "what a process function returns has no name of its own": (
        lambda s: timed(s, "k").process(Twice()),
        "columns=k, K, operator=process, asset=flights/delays",
    ),
    **{f"a collated {use}": (with_collation(change), BINARY) for use, change in COLLATED.items()},
    **{f"collated text in {use}": (within(name, change), BINARY) for use, (name, change) in WITHIN.items()},
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_pipeline_that_cannot_work_leaves_nothing_behind(stream: StreamUnderTest, inbox: Path, case: str) -> None:
    change, message = REFUSED[case]

    def function(spark: SparkSession) -> Stream:
        begun = stream_of(spark, inbox)
        if case != "a type Arrow lacks":
            begun = replace(begun, frame=begun.frame.drop("span"))
        return change(begun)

    with pytest.raises(InvalidPipelineError, match=message) as raised:
        stream.run(function)
    # Dagster's innermost error is the one that names the asset.
    assert "asset=flights/delays" in str(raised.value)
    assert not isinstance(raised.value.__cause__, InvalidPipelineError)
    assert not stream.folder.exists()


@pytest.mark.parametrize(
    ("steps", "rows"),
    [
        (lambda s: s, [{"k": "a", "name": "B"}, {"k": "a", "name": "b"}]),
        (lambda s: s.key_by("k").aggregate(n=agg.count("name")), [{"k": "a", "n": 2}]),
        (
            lambda s: (
                replace(s, frame=s.frame.selectExpr("lower(name) COLLATE UTF8_BINARY AS name"))
                .key_by("name")
                .aggregate(n=agg.count())
            ),
            [{"name": "b", "n": 2}],
        ),
    ],
)
def test_a_collated_column_may_be_passed_on_or_counted_or_made_binary(
    stream: StreamUnderTest, inbox: Path, steps: Callable[[Stream], Stream], rows: list[dict[str, object]]
) -> None:
    drop(inbox, 0, pa.table({"k": ["a", "a"], "name": ["b", "B"]}))

    def function(spark: SparkSession) -> Stream:
        frame = spark.readStream.schema("k string, name string").parquet(str(inbox))
        return steps(Stream(frame.selectExpr("k", "name COLLATE UTF8_LCASE AS name")))

    stream.run(function)
    assert stream.rows() == rows


def test_a_stream_spark_itself_cannot_run_is_a_clear_error(stream: StreamUnderTest, inbox: Path) -> None:
    def function(spark: SparkSession) -> Stream:
        streaming = spark.readStream.schema("k string").parquet(str(inbox))
        static = spark.createDataFrame([("a",)], "k string")
        return Stream(static.join(streaming, "k", "left_outer"))

    with pytest.raises(InvalidPipelineError, match=r"Spark cannot run this as a stream.*asset=flights/delays"):
        stream.run(function)
    assert not stream.folder.exists()


class Locked(Through):
    """It holds what cannot be sent to another process."""

    def __init__(self) -> None:
        self.lock = threading.Lock()


def test_a_process_function_that_cannot_be_sent_to_tasks_is_refused(stream: StreamUnderTest, inbox: Path) -> None:
    with pytest.raises(InvalidPipelineError, match=r"cannot be sent to Spark's tasks.*lock.*asset=flights/delays"):
        stream.run(lambda spark: Stream(stream_of(spark, inbox).frame.select("k", "v")).key_by("k").process(Locked()))
    assert not stream.folder.exists()


def test_a_frame_of_another_session_is_refused(
    stream: StreamUnderTest, spark_of_all: SparkSession, inbox: Path
) -> None:
    with pytest.raises(InvalidPipelineError, match="made with another SparkSession"):
        stream.run(lambda _: stream_of(spark_of_all, inbox))


@pytest.mark.parametrize("setting", ["spark.sql.adaptive.enabled", "spark.sql.streaming.checkpointFileManagerClass"])
def test_a_session_whose_settings_were_changed_is_refused(stream: StreamUnderTest, inbox: Path, setting: str) -> None:
    def function(spark: SparkSession) -> Stream:
        spark.conf.unset(setting)
        return stream_of(spark, inbox)

    with pytest.raises(InvalidPipelineError, match="whose settings were changed"):
        stream.run(function)


def test_a_store_that_workers_cannot_reach_is_refused(
    stream: StreamUnderTest, spark_of_all: SparkSession, inbox: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(StreamUnderTest, "address", StoreAddress("memory://tests"))
        with pytest.raises(InvalidPipelineError, match="cannot reach a memory: store"):
            stream.run(lambda spark: stream_of(spark, inbox))
    # Other tests go on in this session, whose executors are in its own process.
    monkeypatch.setattr("dagster_ckpt.runtime.spark.session.ship_package", lambda context: None)
    monkeypatch.setattr(spark_of_all.sparkContext, "master", "spark://master:7077")
    with pytest.raises(InvalidPipelineError, match=r'storage_options=\{"shared": True\}.*spark://master:7077, asset='):
        stream.run(lambda spark: stream_of(spark, inbox))


def test_spark_started_with_other_settings_is_refused_with_the_line_to_add(
    spark_of_all: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "NEEDED", {"spark.stage.maxConsecutiveAttempts": "7"})
    with pytest.raises(InvalidPipelineError, match=r"add spark.stage.maxConsecutiveAttempts=7 .* found=1"):
        open_session(spark_of_all)


def test_every_lost_shuffle_fails_the_job_even_with_a_decommissioned_executor(
    spark_of_all: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    jvm: Any = spark_of_all._jvm
    entries = getattr(jvm.org.apache.spark.internal.config, "package$").__getattr__("MODULE$")
    ignored = entries.STAGE_IGNORE_DECOMMISSION_FETCH_FAILURE()
    assert ignored.defaultValueString() == "true"
    assert spark_of_all.sparkContext._jsc.sc().conf().get(ignored) is False
    monkeypatch.setattr(sessions, "NEEDED", {"spark.stage.ignoreDecommissionFetchFailure": "never", "other": "1"})
    with pytest.raises(InvalidPipelineError, match=r"Failure=never and other=1 to .* found=false, None"):
        open_session(spark_of_all)


def test_a_streams_settings_are_on_its_own_session_alone(spark_of_all: SparkSession) -> None:
    before = spark_of_all.conf.get("spark.sql.adaptive.enabled")
    assert open_session(spark_of_all).conf.get("spark.sql.adaptive.enabled") == "false"
    assert spark_of_all.conf.get("spark.sql.adaptive.enabled") == before == "true"


def test_a_changed_key_aggregate_or_input_on_existing_state_says_what_changed(
    stream: StreamUnderTest, inbox: Path
) -> None:
    drop(inbox, 0, pa.table({"k": ["a"], "v": [1]}))

    def function(keys: tuple[str, ...], aggregate: agg.Aggregation, folder: Path) -> Callable[[SparkSession], Stream]:
        def asset(spark: SparkSession) -> Stream:
            frame = spark.readStream.schema("k string, v long").parquet(str(folder))
            return Stream(frame).key_by(*keys).aggregate(n=aggregate)

        return asset

    stream.run(function(("k",), agg.sum("v"), inbox))
    for keys, aggregate, folder, changed in [
        (("k", "v"), agg.sum("v"), inbox, "key"),
        (("k",), agg.max("v"), inbox, "aggregate"),
        (("k",), agg.sum("v"), inbox.parent, "input"),
    ]:
        with pytest.raises(
            IncompatibleStateError, match=rf"(?s){changed}.*dagster-ckpt rebuild .*dagster-ckpt from-epoch"
        ):
            stream.run(function(keys, aggregate, folder))
    stream.run(function(("k",), agg.sum("v"), inbox), FAST)
    assert stream.rows() == [{"k": "a", "n": 1}]


def test_an_append_only_stream_takes_added_and_dropped_columns(stream: StreamUnderTest, inbox: Path) -> None:
    def function(schema: str) -> Callable[[SparkSession], Stream]:
        return lambda spark: Stream(spark.readStream.schema(schema).parquet(str(inbox)))

    drop(inbox, 0, pa.table({"k": ["a"], "v": [1]}))
    stream.run(function("k string, v long"))
    drop(inbox, 1, pa.table({"k": ["b"], "v": [2], "w": [3]}))
    stream.run(function("k string, w long"))
    assert stream.rows() == [{"k": "a", "w": None}, {"k": "b", "w": 3}]
