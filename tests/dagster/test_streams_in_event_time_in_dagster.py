"""A stream of windows as Dagster runs and shows it: its table, its late rows as an asset of their own, its mistakes."""

from datetime import UTC, datetime
from typing import Literal

import dagster as dg
import pandas as pd
import pyarrow as pa
from pyspark.sql import SparkSession

from dagster_ckpt import Recovery, Stream, agg, late_rows, streaming_asset, tumbling
from tests.dagster.place import Place, failure_of
from tests.spark.input_files import drop

SCHEMA = "k string, at timestamp, v long"
ARROW = pa.schema([("k", pa.string()), ("at", pa.timestamp("us", "UTC")), ("v", pa.int64())])


def minute(number: int) -> datetime:
    return datetime(2026, 1, 1, 0, number, tzinfo=UTC)


def put(place: Place, *rows: tuple[str, int, int]) -> None:
    """One file of rows: key, minute, value."""
    table = [{"k": key, "at": minute(at), "v": value} for key, at, value in rows]
    drop(place.inbox, place.files, pa.Table.from_pylist(table, schema=ARROW))
    place.files += 1


def by_ten_minutes(
    place: Place, late: Literal["drop", "keep"] = "keep", size: str = "10 minutes"
) -> dg.AssetsDefinition:
    @streaming_asset(shards=2, recovery=Recovery(lease_timeout="2s"))
    def totals(spark: SparkSession) -> Stream:
        place.inbox.mkdir(exist_ok=True)
        rows = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(place.inbox))
        timed = Stream(rows).with_watermark("at", "1 minute").key_by("k")
        return timed.window(tumbling(size), late=late).aggregate(total=agg.sum("v"))

    return totals


def test_late_rows_are_an_asset_that_the_streams_runs_report_and_others_load(place: Place) -> None:
    seen: list[pd.DataFrame] = []

    @dg.asset
    def report(totals: pd.DataFrame, totals_late_rows: pd.DataFrame) -> None:
        seen.extend([totals, totals_late_rows])

    totals = by_ten_minutes(place)
    put(place, ("a", 1, 1), ("b", 2, 2))
    put(place, ("a", 25, 4))
    put(place, ("a", 3, 100), ("b", 26, 8))  # the first is late: its window ended fifteen minutes ago
    result = place.run(totals, others=(late_rows(totals), report))
    assert result.success
    table, late = seen
    assert sorted(zip(table["k"], table["total"], strict=True)) == [("a", 1), ("b", 2)]
    assert late[["k", "v"]].to_numpy().tolist() == [["a", 100]]
    [told] = place.events("totals_late_rows")
    # Not every epoch is told: the event may be of one after that in which the row came.
    assert [told.metadata[label].value for label in ("late_rows", "late_rows_total")] == [1, 1]
    newest = place.events("totals")[-1]
    assert newest.metadata["dagster/row_count"].value == 2
    # Another run without late rows has nothing to tell of them, and loses none.
    put(place, ("b", 27, 16))
    assert place.run(totals, others=(late_rows(totals),)).success
    assert len(place.events("totals_late_rows")) == 1
    assert place.history("totals").late_rows().num_rows == 1


def test_a_step_that_cannot_work_names_asset_and_reason_in_dagster(place: Place) -> None:
    put(place, ("a", 1, 1))
    result = place.run(by_ten_minutes(place, size="0s"))
    assert not result.success
    assert "asset=totals" in failure_of(result)
    assert "size" in failure_of(result)
    # Nothing was lost by it: mended, it works all there is.
    put(place, ("a", 25, 4))
    assert place.run(by_ten_minutes(place)).success
    assert [row["total"] for row in place.history("totals").read().to_pylist()] == [1]
