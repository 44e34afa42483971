"""A stream that reads another: it equals a batch over the upstream's table, whatever happens to either."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from dagster_ckpt import agg, tumbling
from dagster_ckpt.clock import SystemClock
from dagster_ckpt.errors import CorruptStateError, IncompatibleStateError, InvalidPipelineError
from dagster_ckpt.operators import RunningAggregate
from dagster_ckpt.protocol.manifest.manifest import BackfillStatus, InputSpec, ReadBy, SourceIdentity
from dagster_ckpt.protocol.object_names import folder_of
from dagster_ckpt.runtime.declared.stream import Stream
from dagster_ckpt.runtime.driver.stream_job import JobHooks
from dagster_ckpt.runtime.driver.streaming_query import EpochQuery
from dagster_ckpt.runtime.micro_batch import epoch_plans
from dagster_ckpt.runtime.micro_batch.epoch_driver import CommittedEpoch
from dagster_ckpt.runtime.plans.compiler import stream_of_sql
from dagster_ckpt.runtime.spark.spark_reader import register_spark_reader
from dagster_ckpt.runtime.task.dataflow import on_scans
from dagster_ckpt.runtime.upstreams.downstream import Downstream
from dagster_ckpt.runtime.upstreams.upstream_stream import newest_manifest, read_changes, read_table
from dagster_ckpt.state.engine import Engine
from dagster_ckpt.storage.chain.manifest_chain import ManifestChain
from dagster_ckpt.storage.operations.collector import Collector
from tests.spark.input_files import drop
from tests.spark.streams import FAST, StreamUnderTest
from tests.spark.ways import TASKS, WAYS, readers
from tests.unit.history.made_streams import MadeStream, departures
from tests.worlds.graph_stream import GraphStream

pytestmark = [pytest.mark.reads_streams, pytest.mark.slow]

ROWS = pa.schema([("k", pa.string()), ("v", pa.int64())])
PATIENT = replace(FAST, tolerable_failures=0)


@dataclass
class Chain:
    """`up` sums rows by key; `down` reads what `up` has committed."""

    up: StreamUnderTest
    down: StreamUnderTest
    inbox: Path
    epochs_max: int = 100
    rows_a_part: int = 1_000_000
    files: int = 0

    def drop(self, *rows: tuple[str, int]) -> None:
        keys, values = zip(*rows, strict=True)
        drop(self.inbox, self.files, pa.table({"k": pa.array(keys, pa.string()), "v": pa.array(values, pa.int64())}))
        self.files += 1

    def feed(self, *batches: list[tuple[str, int]]) -> None:
        """More epochs of the upstream, one for each batch: as Spark makes them by `feed_by_spark`, but without it."""
        for rows in batches:
            keys, values = zip(*rows, strict=True)
            table = pa.table([keys, pa.array(values, pa.int64())], schema=ROWS)
            self.made.commit(table)

    def feed_by_spark(self, *batches: list[tuple[str, int]]) -> None:
        for rows in batches:
            self.drop(*rows)
        self.up.run(self.sums, PATIENT)

    @cached_property
    def made(self) -> GraphStream:
        rows = InputSpec((SourceIdentity("parquet", self.inbox.as_uri()),), ROWS)
        sums = RunningAggregate.build(("k",), {"total": agg.sum("v")}, rows).pipeline
        return GraphStream(self.up.address, self.up.name, sums, Engine(SystemClock()))

    def read(self, spark: SparkSession) -> DataFrame:
        return spark.readStream.schema("k string, v long").option("maxFilesPerTrigger", "1").parquet(str(self.inbox))

    def sums(self, spark: SparkSession) -> Stream:
        return Stream(self.read(spark)).key_by("k").aggregate(total=agg.sum("v"))

    def as_it_is(self, spark: SparkSession) -> Stream:
        return Stream(self.read(spark))

    def upstream(self, spark: SparkSession) -> Stream:
        reads = self.reads
        return read_table(spark, reads, newest_manifest(reads, ("up",), SystemClock()))

    def changes(self, spark: SparkSession) -> DataFrame:
        reads = self.reads
        return read_changes(spark, reads, newest_manifest(reads, ("up",), SystemClock()))

    def large(self, spark: SparkSession) -> Stream:
        return self.upstream(spark).where("total > 10")

    @property
    def reads(self) -> Downstream:
        return Downstream(self.down.address, folder_of((self.down.name,)), self.epochs_max, 2, self.rows_a_part)

    def consumed(self) -> list[int]:
        """Which of the upstream's epochs each epoch of the downstream, oldest first, has read up to."""
        history = self.down.history()
        shown = [history.manifest(info.epoch) for info in reversed(history.epochs())]
        return [entry.epoch for manifest in shown for entry in manifest.consumed]


@pytest.fixture
def chain(spark_of_all: SparkSession, tmp_path: Path, inbox: Path) -> Chain:
    up = StreamUnderTest(spark_of_all, tmp_path, "up", shards=2)
    return Chain(up, StreamUnderTest(spark_of_all, tmp_path, "down", shards=2), inbox)


def by_key(stream: StreamUnderTest) -> dict[object, object]:
    return {row["k"]: row["total"] for row in stream.rows()}


@pytest.mark.long
def test_rows_that_match_come_change_and_go_with_the_upstreams(chain: Chain) -> None:
    chain.feed_by_spark([("a", 5), ("b", 20), ("c", 30)])
    chain.down.run(chain.large, PATIENT)
    assert by_key(chain.down) == {"b": 20, "c": 30}
    chain.feed_by_spark([("a", 10), ("b", -15), ("c", 1)], [("d", 11), ("a", 1)])
    chain.down.run(chain.large, PATIENT)
    assert by_key(chain.down) == {"a": 16, "c": 31, "d": 11}
    first, second = chain.consumed()
    assert second == chain.up.history().latest().epoch > first
    # Without news there is no epoch.
    chain.down.run(chain.large, PATIENT)
    assert len(chain.consumed()) == 2


@pytest.mark.long
def test_a_rename_in_the_upstream_is_followed_by_one_that_is_behind(chain: Chain) -> None:
    """Epochs from before the rename are read under the new names, by the code that has them too."""
    chain.feed_by_spark([("a", 5), ("b", 20)])
    chain.down.run(chain.large, PATIENT)
    chain.feed_by_spark([("a", 10), ("b", -15)])
    chain.drop(("c", 11))

    def renamed(spark: SparkSession) -> Stream:
        rows = chain.read(spark).withColumnRenamed("k", "key")
        return Stream(rows).key_by("key").aggregate(total=agg.sum("v"))

    chain.up.renamed = {"k": "key"}
    chain.up.run(renamed, PATIENT)
    with pytest.raises(IncompatibleStateError, match="the key was k, now it is key"):
        chain.down.run(chain.large, PATIENT)
    chain.down.renamed = {"k": "key"}
    chain.down.run(chain.large, PATIENT)
    assert {row["key"]: row["total"] for row in chain.down.rows()} == {"a": 15, "c": 11}


@pytest.mark.long
def test_an_epoch_reads_a_limited_number_of_upstream_epochs(chain: Chain) -> None:
    chain.epochs_max = 2
    chain.feed([("a", 1)])
    chain.down.run(chain.upstream, PATIENT)
    chain.feed(*([("a", 1), (f"k{value}", value)] for value in range(5)))
    chain.down.run(chain.upstream, PATIENT)
    epochs = [info.epoch for info in reversed(chain.up.history().epochs())]
    assert chain.consumed() == [epochs[0], epochs[2], epochs[4], epochs[5]]
    assert by_key(chain.down) == by_key(chain.up)


@pytest.mark.long
def test_spark_may_aggregate_an_upstreams_rows_before_it_shuffles_them(
    chain: Chain, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain.epochs_max, plans, execution_of_batch = 1, list[str](), EpochQuery.execution_of_batch

    def noted(query: EpochQuery, frame: DataFrame) -> Any:
        execution: Any = execution_of_batch(query, frame)
        plans.append(str(execution.sparkPlan().toString()))
        return execution

    monkeypatch.setattr(EpochQuery, "execution_of_batch", noted)

    def totals(spark: SparkSession) -> Stream:
        return chain.upstream(spark).key_by("k").aggregate(total=agg.sum("v"), rows=agg.count())

    for values in ([1, 2], [10, 20, 30, 40]):
        for value in values:
            chain.drop(*[("a", value), ("b", 1)] * 5)
        chain.up.run(chain.as_it_is, PATIENT)
        chain.down.run(totals, PATIENT)
    assert sum("MicroBatchScan" in plan for plan in plans) >= 3
    assert chain.down.rows() == [{"k": "a", "rows": 30, "total": 515}, {"k": "b", "rows": 30, "total": 30}]


def _keys_by_total(chain: Chain, spark: SparkSession) -> Stream:
    return chain.upstream(spark).key_by("total").aggregate(keys=agg.count())


def _inserts(chain: Chain, spark: SparkSession) -> Stream:
    inserts = chain.changes(spark).where("_change_type = 'insert' AND total > 1")
    return Stream(inserts).key_by("k").aggregate(epochs=agg.count(), total=agg.sum("total"))


@pytest.mark.parametrize(
    ("reads", "table"),
    [
        (Chain.large, [{"k": "b", "total": 30}, {"k": "d", "total": 11}]),
        (_keys_by_total, [{"total": 2, "keys": 2}, {"total": 11, "keys": 1}, {"total": 30, "keys": 1}]),
        (
            _inserts,
            [
                {"k": "b", "epochs": 1, "total": 20},
                {"k": "c", "epochs": 1, "total": 2},
                {"k": "d", "epochs": 1, "total": 11},
            ],
        ),
    ],
    ids=["a table", "its rows by another key", "its change log"],
)
@pytest.mark.parametrize("way", [pytest.param(way, marks=pytest.mark.ways(way)) for way in WAYS])
def test_an_upstream_is_read_in_any_way(
    chain: Chain,
    reads: Callable[[Chain, SparkSession], Stream],
    table: list[dict[str, object]],
    ways: list[str],
    way: str,
) -> None:
    """First its snapshot, then its log, by one run and then by another."""
    chain.epochs_max = 1
    for batches in (
        [[("a", 1), ("b", 20), ("c", 2)]],
        [[("b", -15), ("a", 1)], [("b", 25)]],
        [[("d", 11)]],
    ):
        chain.feed(*batches)
        chain.down.run(partial(reads, chain), PATIENT)
    assert ways == [way] * 4
    assert set(readers(chain.down)) == {ReadBy(way)}
    assert sorted(chain.down.rows(), key=repr) == sorted(table, key=repr)
    assert chain.down.history().verify().whole


@pytest.mark.parametrize("way", [pytest.param(way, marks=pytest.mark.ways(way)) for way in WAYS])
@pytest.mark.parametrize("keyed", [False, True], ids=["as it is", "by key"])
def test_an_upstream_that_only_grows_is_read_in_any_way(chain: Chain, keyed: bool, ways: list[str], way: str) -> None:
    def below(spark: SparkSession) -> Stream:
        rows = chain.upstream(spark).where("v > 1")
        return rows.key_by("k").aggregate(v=agg.sum("v")) if keyed else rows

    for values in ([("a", 1), ("b", 2)], [("a", 3)], [("b", 4), ("c", 5)]):
        chain.drop(*values)
        chain.up.run(chain.as_it_is, PATIENT)
        del ways[:]
        chain.down.run(below, PATIENT)
        assert ways == [way]
    assert set(readers(chain.down)) == {ReadBy(way)}
    found = sorted((row["k"], row["v"]) for row in chain.down.rows())
    assert found == ([("a", 3), ("b", 6), ("c", 5)] if keyed else [("a", 3), ("b", 2), ("b", 4), ("c", 5)])
    assert chain.down.history().verify().whole


def _by_its_key(chain: Chain, spark: SparkSession) -> Stream:
    return chain.upstream(spark).key_by("k").aggregate(rows=agg.count(), total=agg.sum("total"))


def _by_a_computed_key(chain: Chain, spark: SparkSession) -> Stream:
    rows = chain.changes(spark).where("_change_type != 'delete'").selectExpr("if(total > 50, 'x', k) AS k", "total")
    return Stream(rows).key_by("k").aggregate(total=agg.max("total"))


@pytest.mark.ways(TASKS)
@pytest.mark.parametrize(
    ("reads", "stays", "rows"),
    [
        (Chain.large, True, 94),
        (_by_its_key, True, 101),
        (_keys_by_total, False, 76),
        (_by_a_computed_key, False, 53),
        (_inserts, True, 99),
    ],
    ids=["rows", "by their key", "by another key", "by another value", "changes"],
)
def test_rows_whose_key_stays_the_same_are_not_shuffled(
    chain: Chain,
    reads: Callable[[Chain, SparkSession], Stream],
    stays: bool,
    rows: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nor are those of its snapshot, where that is read at once."""
    nested: list[bool] = []

    def noted(*arguments: Any, in_place: bool) -> Any:
        nested.append(in_place)
        return on_scans(*arguments, in_place=in_place)

    monkeypatch.setattr(epoch_plans, "on_scans", noted)
    first = [(f"k{number}", number) for number in range(100)]
    for batch in (first, [*first[:50], ("new", 3)]):
        chain.feed(batch)
        chain.down.run(partial(reads, chain), PATIENT)
    assert nested == [stays] * 2
    assert set(readers(chain.down)) == {ReadBy.TASKS}
    assert len(chain.down.rows()) == rows
    assert chain.down.history().verify().whole


def test_an_aggregate_takes_back_what_the_upstream_changes(chain: Chain) -> None:
    def totals(spark: SparkSession) -> Stream:
        return chain.upstream(spark).key_by("total").aggregate(keys=agg.count())

    chain.feed([("a", 1), ("b", 1), ("c", 2)])
    chain.down.run(totals, PATIENT)
    chain.feed([("a", 1)])
    chain.down.run(totals, PATIENT)
    assert {row["total"]: row["keys"] for row in chain.down.rows()} == {1: 1, 2: 2}


def test_a_query_takes_back_what_the_upstream_changes(chain: Chain) -> None:
    query = """
        SELECT a.total, count(*) AS pairs, max(b.k) AS last FROM up a JOIN up b ON a.total = b.total AND a.k <= b.k
        GROUP BY a.total
    """
    for batches, wanted in [
        ([[("a", 1), ("b", 1), ("c", 2)]], {1: (3, "b"), 2: (1, "c")}),
        ([[("a", 1)], [("c", 3), ("d", 1)]], {1: (3, "d"), 2: (1, "a"), 5: (1, "c")}),
    ]:
        chain.feed(*batches)
        chain.down.run(lambda spark: stream_of_sql(spark, query, {"up": chain.upstream(spark)}), PATIENT)
        assert {row["total"]: (row["pairs"], row["last"]) for row in chain.down.rows()} == wanted


@pytest.mark.long
def test_windows_follow_what_the_upstream_changes(chain: Chain) -> None:
    def windows(spark: SparkSession) -> Stream:
        timed = chain.upstream(spark).with_column("at", "timestamp_seconds(total)").with_watermark("at", "0s")
        return timed.window(tumbling("10 seconds"), early=True).aggregate(keys=agg.count(), all=agg.sum("total"))

    for batches, wanted in [([[("a", 5), ("b", 20), ("c", 25)]], [5, 45]), ([[("b", -14)], [("c", 0)]], [11, 25])]:
        chain.feed(*batches)
        chain.down.run(windows, PATIENT)
        assert [row["all"] for row in sorted(chain.down.rows(), key=lambda row: str(row["window_start"]))] == wanted


@pytest.mark.long
def test_floats_and_distinct_values_are_taken_back_without_a_trace(chain: Chain) -> None:
    def means(spark: SparkSession) -> Stream:
        return Stream(chain.read(spark)).key_by("k").aggregate(mean=agg.avg("v"))

    def of_means(spark: SparkSession) -> Stream:
        return chain.upstream(spark).aggregate(
            total=agg.sum("mean"), spread=agg.var_pop("mean"), kinds=agg.count_distinct("mean")
        )

    huge = 2**60
    for rows in ([("a", huge), ("b", 1), ("b", 2)], [("a", 1 - huge)]):
        chain.drop(*rows)
        chain.up.run(means, PATIENT)
        chain.down.run(of_means, PATIENT)
    assert chain.down.rows() == [{"total": 0.5 + 1.5, "spread": 0.25, "kinds": 2}], "a sum of doubles would be 0.5"


def test_a_sum_over_everything_needs_no_key_and_is_followed_like_any_table(chain: Chain) -> None:
    def total(spark: SparkSession) -> Stream:
        return Stream(chain.read(spark)).aggregate(n=agg.count(), keys=agg.count_distinct("k"), total=agg.sum("v"))

    def of_changes(spark: SparkSession) -> Stream:
        return other.upstream(spark).aggregate(again=agg.sum("total"))

    chain.drop(("a", 1), ("b", 2))
    chain.up.run(total, PATIENT)
    chain.down.run(chain.upstream, PATIENT)
    assert chain.down.rows() == chain.up.rows() == [{"n": 2, "keys": 2, "total": 3}]
    chain.up.history().reshard(4)
    for rows in ([("a", 10)], [("c", 100), ("a", 1000)]):
        chain.drop(*rows)
    chain.up.run(total, PATIENT)
    chain.down.run(chain.upstream, PATIENT)
    assert chain.down.rows() == chain.up.rows() == [{"n": 5, "keys": 3, "total": 1113}]
    other = replace(chain, down=replace(chain.down, name="other"))
    other.down.run(of_changes, PATIENT)
    assert other.down.rows() == [{"again": 1113}]


def test_rows_of_an_upstream_that_only_grows_come_once(chain: Chain) -> None:
    def sums(spark: SparkSession) -> Stream:
        return chain.upstream(spark).where("v > 0").key_by("k").aggregate(total=agg.sum("v"))

    register_spark_reader(chain.up.spark)  # as an IO manager does that reads a stream in the same process
    for value in (1, 2, -3, 4):
        chain.drop(("a", value))
    chain.up.run(chain.as_it_is, PATIENT)
    chain.down.run(sums, PATIENT)
    chain.drop(("a", 10), ("b", 1))
    chain.up.run(chain.as_it_is, PATIENT)
    chain.down.run(sums, PATIENT)
    assert by_key(chain.down) == {"a": 17, "b": 1}


def test_the_change_log_has_every_epoch_and_begins_with_the_table(chain: Chain) -> None:
    def changes(spark: SparkSession) -> Stream:
        return Stream(chain.changes(spark).withColumnsRenamed({"_epoch": "epoch", "_change_type": "what"}))

    chain.feed([("a", 1), ("b", 2)])
    chain.down.run(changes, PATIENT)
    chain.feed([("a", 1)], [("a", 1)])
    chain.down.run(changes, PATIENT)
    one, two, three = (info.epoch for info in reversed(chain.up.history().epochs()))
    found = [(row["epoch"], row["what"], row["k"], row["total"]) for row in chain.down.table().to_pylist()]
    assert sorted(found) == [
        (one, "insert", "a", 1),
        (one, "insert", "b", 2),
        (two, "update_postimage", "a", 2),
        (two, "update_preimage", "a", 1),
        (three, "update_postimage", "a", 3),
        (three, "update_preimage", "a", 2),
    ]


def test_a_table_and_files_are_read_in_one_stream(chain: Chain) -> None:
    def both(spark: SparkSession) -> Stream:
        table = chain.upstream(spark).frame
        return Stream(table.unionByName(chain.read(spark)))

    chain.drop(("a", 1), ("b", 2))
    chain.up.run(chain.as_it_is, PATIENT)
    chain.down.run(both, PATIENT)
    chain.drop(("c", 3))
    chain.up.run(chain.as_it_is, PATIENT)
    chain.down.run(both, PATIENT)
    assert sorted(str(row["k"]) for row in chain.down.rows()) == ["a", "a", "b", "b", "c", "c"]


@pytest.mark.long
def test_a_rollback_of_the_downstream_reads_the_same_epochs_again(chain: Chain) -> None:
    chain.feed([("a", 11)])
    chain.down.run(chain.large, PATIENT)
    chain.feed([("b", 12)])
    chain.down.run(chain.large, PATIENT)
    first = min(info.epoch for info in chain.down.history().epochs())
    chain.down.history().rollback(first)
    assert by_key(chain.down) == {"a": 11}
    chain.down.run(chain.large, PATIENT)
    assert by_key(chain.down) == {"a": 11, "b": 12}
    chain.down.history().rollback(0)
    chain.down.run(chain.large, PATIENT)
    assert by_key(chain.down) == {"a": 11, "b": 12}
    assert chain.up.history().pins() == []


def test_an_upstream_rolled_back_below_what_was_read_stops_the_downstream_with_what_helps(chain: Chain) -> None:
    chain.feed_by_spark([("a", 11)])
    chain.down.run(chain.large, PATIENT)
    chain.feed_by_spark([("a", 12), ("b", 12)])
    chain.down.run(chain.large, PATIENT)
    mine = [info.epoch for info in reversed(chain.down.history().epochs())]
    theirs = [info.epoch for info in reversed(chain.up.history().epochs())]
    chain.up.history().rollback(theirs[0])
    says = rf"rolled back.*`dagster-ckpt .* rollback down --epoch {mine[0]}` .*rollback down --epoch 0` reads"
    with pytest.raises(IncompatibleStateError, match=rf"{says}.*asset=down, upstream=up, consumed={theirs[1]}"):
        chain.down.run(chain.large, PATIENT)
    assert by_key(chain.down) == {"a": 23, "b": 12}  # it can be read as before
    chain.down.history().rollback(mine[0], fence=True)  # the run that failed left its lease to lapse
    chain.up.run(chain.sums, PATIENT)
    chain.down.run(chain.large, PATIENT)
    assert by_key(chain.down) == {"a": 23, "b": 12}


def test_a_damaged_log_stops_the_downstream_until_it_is_restored(
    chain: Chain, caplog: pytest.LogCaptureFixture
) -> None:
    chain.feed_by_spark([("a", 11)])
    chain.down.run(chain.large, PATIENT)
    chain.feed_by_spark([("a", 1)], [("a", 1), ("b", 12)])
    first, second, third = (info.epoch for info in reversed(chain.up.history().epochs()))
    [file] = [ref.path for ref in chain.up.history().manifest(second).changes]
    (chain.up.folder / file).rename(chain.inbox / ".lost")
    says = (
        rf"nothing of this stream is damaged.*take the upstream back .*`.* rollback up --epoch {first}`.* upstream=up, "
        rf"good_epoch={first}, asset=down, consumed={first}, reason=missing\. file={file}, epoch={second}, "
    )
    with pytest.raises(CorruptStateError, match=says):
        chain.down.run(chain.large, FAST)
    assert "an epoch failed" not in caplog.text, "trying again mends no damage"
    assert chain.consumed() == [first]
    assert by_key(chain.down) == {"a": 11}
    chain.up.history().rollback(first)
    chain.up.run(chain.sums, PATIENT)
    chain.down.run(chain.large, PATIENT)
    assert by_key(chain.down) == by_key(chain.up) == {"a": 13, "b": 12}
    assert chain.consumed() == [first, chain.up.history().latest().epoch]
    assert chain.up.history().latest().epoch > third


def test_a_downstream_cut_off_while_it_was_down_reports_it_and_starts_over(chain: Chain) -> None:
    """Its upstream has many epochs, so it is made without Spark."""
    up = MadeStream(chain.up.address.url, "up", retained=1)
    up.commit(departures({"UA": [1.0], "AA": [2.0]}))
    chain.down.run(chain.upstream, PATIENT)
    for delay in range(20):
        up.commit(departures({"UA": [float(delay)], f"N{delay}": [1.0]}))
    root = chain.up.address.open()
    Collector(ManifestChain(up.writer.store, SystemClock()), root, grace_ms=-1_000, max_lag=5).collect()
    with pytest.raises(IncompatibleStateError, match=r"\(max_lag\): `.* rollback down --epoch 0` reads .*upstream=up"):
        chain.down.run(chain.upstream, PATIENT)
    assert chain.down.table().num_rows == 2, "it can be read as before"
    chain.down.history().rollback(0, fence=True)
    chain.down.run(chain.upstream, PATIENT)
    assert chain.down.rows() == chain.up.rows()
    assert len(chain.down.rows()) == 22
    up.commit(departures({"UA": [7.0]}))
    chain.down.run(chain.upstream, PATIENT)
    assert chain.down.rows() == chain.up.rows()
    up.close()


@pytest.mark.long
def test_a_large_table_comes_in_parts_and_then_its_log_without_gap_or_overlap(chain: Chain) -> None:
    chain.rows_a_part = 100
    chain.feed([(f"k{value}", value) for value in range(400)])
    began = chain.up.history().latest().epoch
    seen: list[BackfillStatus] = []

    def committed(epoch: CommittedEpoch) -> None:
        seen.append(epoch.manifest.backfill.status)
        if len(seen) == 2:
            raise InvalidPipelineError("the run ends in the middle of the snapshot")

    with pytest.raises(InvalidPipelineError, match="in the middle"):
        chain.down.run(chain.upstream, PATIENT, JobHooks(on_commit=committed))
    half = chain.down.history().manifest()
    assert (half.backfill.status, half.backfill.position) == (BackfillStatus.CREATING, "2/4")
    assert 100 < len(chain.down.rows()) < 300
    chain.feed([("k1", 1), ("k399", 1), ("new", 1)])
    chain.down.run(chain.upstream, PATIENT)
    assert by_key(chain.down) == by_key(chain.up)
    assert chain.consumed() == [began] * 4 + [chain.up.history().latest().epoch]
    assert seen == [BackfillStatus.CREATING] * 2

    chain.down.history().rollback(half.epoch, fence=True)
    chain.feed([("k2", 1), ("newer", 1)])
    chain.down.run(chain.upstream, PATIENT)
    assert by_key(chain.down) == by_key(chain.up), "who goes back into the midst of the snapshot goes on there"


def test_an_upstream_that_has_no_epoch_yet_is_followed_from_its_beginning(chain: Chain) -> None:
    chain.up.run(chain.sums, PATIENT)
    chain.down.run(chain.upstream, PATIENT)
    assert chain.up.history().latest().epoch == 0
    chain.feed_by_spark([("a", 1)])
    chain.down.run(chain.upstream, PATIENT)
    assert by_key(chain.down) == {"a": 1}


def test_what_cannot_follow_a_changing_table_is_refused_by_name(chain: Chain) -> None:
    chain.feed([("a", 1)])
    for function, says in [
        (lambda spark: chain.upstream(spark).where("total > rand()"), "time of day or chance.*total > rand"),
        (lambda spark: chain.upstream(spark).where("current_timestamp() > '2020-01-01'"), "time of day or chance"),
        (lambda spark: chain.upstream(spark).where("total > (SELECT max(id) FROM range(3))"), "reads another table"),
        (lambda spark: chain.upstream(spark).where("total IN (SELECT id FROM range(3))"), "reads another table"),
        (lambda spark: chain.upstream(spark).where("EXISTS (SELECT id FROM range(3))"), "reads another table"),
        (lambda spark: chain.upstream(spark).where("_change_type = 'insert'"), "leave it out.*_change_type"),
        (lambda spark: chain.upstream(spark).key_by("k").deduplicate(), "one per key already"),
        (lambda spark: chain.upstream(spark).with_watermark("total", "1s"), "only a window asks for their event time"),
    ]:
        with pytest.raises(InvalidPipelineError, match=says):
            chain.down.run(function, PATIENT)


def test_another_condition_does_not_fit_the_rows_that_are_kept(chain: Chain) -> None:
    chain.feed([("a", 11)])
    chain.down.run(chain.large, PATIENT)
    with pytest.raises(IncompatibleStateError, match="where"):
        chain.down.run(lambda spark: chain.upstream(spark).where("total > 11"), PATIENT)
