"""`run_batches`, as a user's own tests call it."""

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from dagster_ckpt import agg, streaming_asset
from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.runtime.declared.sources import source
from dagster_ckpt.runtime.declared.stream import Stream
from dagster_ckpt.testing import run_batches

pytestmark = pytest.mark.usefixtures("spark_of_all")


def read_departures(spark: SparkSession) -> DataFrame:
    return spark.readStream.schema("carrier string, delay double").parquet("data/departures")


departures = source("departures", read_departures)
more = source("more", read_departures)


@streaming_asset(group_name="flights")
def delay_by_carrier(spark: SparkSession) -> Stream:
    both = departures(spark).union(more(spark))
    return Stream(both.where("delay > 0")).key_by("carrier").aggregate(worst=agg.max("delay"))


def batch(*delays: float) -> pa.Table:
    return pa.table({"carrier": ["UA"] * len(delays), "delay": list(delays)})


def test_the_batches_take_the_place_of_the_declared_sources() -> None:
    table = run_batches(delay_by_carrier, {"departures": [batch(1, 5), batch(-1)], "more": [batch(7), batch(2)]})
    assert table.to_pylist() == [{"carrier": "UA", "worst": 7.0}]


def test_each_table_is_an_epoch_and_a_plain_function_will_do() -> None:
    def by_rank(spark: SparkSession, least: float) -> Stream:
        frame = departures(spark).where(f"delay >= {least}")
        return Stream(frame).key_by("carrier").aggregate(first=agg.first("delay", by="delay"), n=agg.count())

    table = run_batches(by_rank, {"departures": [batch(3), batch(), batch(1, 2)]}, arguments={"least": 2})
    assert table.to_pylist() == [{"carrier": "UA", "first": 2.0, "n": 2}]


def test_upstream_streams_are_batches_of_their_rows_or_changes() -> None:
    def late(delay_by_carrier: Stream, log: DataFrame) -> Stream:
        assert log.columns == ["carrier", "delay"]
        return delay_by_carrier.where("worst > 3")

    def changes(*rows: tuple[str, str, int]) -> pa.Table:
        names = ["_change_type", "carrier", "worst"]
        return pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows])

    table = run_batches(
        late,
        {
            "delay_by_carrier": [
                changes(("insert", "UA", 4), ("insert", "AA", 3)),
                changes(("update_preimage", "UA", 4), ("update_postimage", "UA", 2), ("insert", "DL", 9)),
            ],
            "log": [batch(1)],
        },
        keys={"delay_by_carrier": ["carrier"]},
    )
    assert table.to_pylist() == [{"carrier": "DL", "worst": 9}]
    with pytest.raises(InvalidPipelineError, match=r"keys=.*upstream=delay_by_carrier.*keys=None"):
        run_batches(late, {"delay_by_carrier": [changes(("insert", "UA", 4))], "log": [batch(1)]})


@pytest.mark.parametrize(("other", "kept"), [(1.0, "x > 5"), (5.0, "x <> 5")])
def test_a_row_with_nan_that_a_filter_keeps_is_there_and_goes_again(other: float, kept: str) -> None:
    def filtered(rows: Stream) -> Stream:
        return rows.where(kept).select("id")

    def changes(*rows: tuple[str, int, float]) -> pa.Table:
        return pa.Table.from_pylist([dict(zip(["_change_type", "id", "x"], row, strict=True)) for row in rows])

    nan = float("nan")
    came, went = changes(("insert", 1, other), ("insert", 2, nan)), changes(("delete", 2, nan))
    keys = {"rows": ["id"]}
    assert 2 in run_batches(filtered, {"rows": [came]}, keys=keys)["id"].to_pylist()
    assert 2 not in run_batches(filtered, {"rows": [came, went]}, keys=keys)["id"].to_pylist()


def test_in_a_run_the_source_is_what_its_reader_reads(spark: SparkSession) -> None:
    ticks = source("ticks", lambda spark: spark.readStream.format("rate").load())
    assert ticks(spark).isStreaming
    assert ticks(spark).columns == ["timestamp", "value"]


@pytest.mark.parametrize(
    ("batches", "message"),
    [
        ({"departures": [batch(1)]}, r"a source without batches.*source=more, given=\['departures'\]"),
        ({"departures": [batch(1)], "more": [batch(1)], "other": [batch(1)]}, r"names=\['other'\]"),
        ({"departures": [], "more": [batch(1)]}, "at least one table.*source=departures"),
    ],
)
def test_batches_that_do_not_fit_the_sources_are_refused(batches: dict[str, list[pa.Table]], message: str) -> None:
    with pytest.raises(InvalidPipelineError, match=message):
        run_batches(delay_by_carrier, batches)


def test_a_parameter_that_nothing_fills_is_named() -> None:
    with pytest.raises(InvalidPipelineError, match="parameter=threshold"):
        run_batches(lambda spark, threshold: Stream(departures(spark)), {"departures": [batch(1)]})
    with pytest.raises(InvalidPipelineError, match="a streaming asset, or a function"):
        run_batches("delay_by_carrier", {})
