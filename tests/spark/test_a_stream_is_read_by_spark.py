"""A stream as a batch DataFrame: Spark's tasks read what `StreamHistory` reads."""

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.history import CheckpointStore
from dagster_ckpt.runtime.spark.spark_reader import SparkReader, register_spark_reader
from tests.unit.history.made_streams import MadeStream, append, departures


def rows(frame: DataFrame | pa.Table) -> list[str]:
    found = frame.to_pylist() if isinstance(frame, pa.Table) else [row.asDict() for row in frame.collect()]
    return sorted(map(repr, found))


def test_tables_and_changes_at_any_epoch_equal_the_history(spark_of_all: SparkSession, tmp_path: Path) -> None:
    session, url = spark_of_all.newSession(), tmp_path.as_uri()
    delays, log = MadeStream(url, "flights/delays"), MadeStream(url, "departures", append())
    for stream in (delays, log):
        stream.commit(departures({"UA": [1.0, 5.0], None: [3.0], "AA": [1.0]}))
    store, reader = CheckpointStore(url), SparkReader(session, url)
    history = store.stream("flights/delays")
    before = reader.read("flights/delays")
    first = history.latest().epoch
    for stream in (delays, log):
        stream.commit(departures({"UA": [3.0], "B6": [4.0]}))
    last = history.latest().epoch
    # The epoch is that of the moment when the DataFrame was made, in each of its actions.
    assert rows(before) == rows(before) == rows(history.read(epoch=first))

    session.conf.set("spark.sql.session.timeZone", "UTC")
    now = session.read.format("dagster_ckpt").option("store", url).option("stream", "flights/delays")
    assert rows(now.option("numPartitions", 3).load()) == rows(history.read())
    assert rows(now.option("epoch", first).load()) == rows(history.read(epoch=first))
    changed = now.option("changesAfter", first)
    with pytest.raises(AnalysisException, match="and no epoch of the table"):
        changed.load()

    assert rows(reader.changes("flights/delays", 0)) == rows(history.changes(0))
    assert rows(reader.changes("flights/delays", first, last, ["carrier", "_change_type"])) == rows(
        history.changes(first, last).select(["carrier", "_change_type"])
    )
    time = store.stream("departures").info(first).committed_at
    assert rows(reader.read("departures", as_of=time, columns=["dep_delay"])) == rows(
        store.stream("departures").read(as_of=time, columns=["dep_delay"])
    )
    for stream in (delays, log):
        stream.close()


def test_errors_are_raised_before_spark_runs(spark_of_all: SparkSession, tmp_path: Path) -> None:
    session, url = spark_of_all.newSession(), tmp_path.as_uri()
    stream = MadeStream(url, "delays")
    stream.commit(departures({"UA": [1.0]}))
    stream.close()
    reader = SparkReader(session, url)
    with pytest.raises(InvalidPipelineError, match="Did you mean 'delays'"):
        reader.read("delay")
    with pytest.raises(InvalidPipelineError, match="no such epoch yet"):
        reader.read("delays", epoch=9)
    with pytest.raises(InvalidPipelineError, match="unknown columns"):
        reader.read("delays", columns=["flight"])
    with pytest.raises(InvalidPipelineError, match="no such epoch yet"):
        reader.changes("delays", after=9)
    register_spark_reader(session)
    plain = session.read.format("dagster_ckpt").option("store", url)
    for option, value, why in (("epoch", "9", "no such epoch yet"), ("epock", "1", "unknown=\\['epock'\\]")):
        with pytest.raises(AnalysisException, match=why):
            plain.option("stream", "delays").option(option, value).load()


def test_no_secret_is_an_option(spark_of_all: SparkSession) -> None:
    session = spark_of_all.newSession()
    with pytest.raises(InvalidPipelineError, match="takes no storage options"):
        SparkReader(session, "file:///nowhere", {"secret": "hidden"})
