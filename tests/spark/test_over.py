"""Functions over a partition, as batch SQL has them after each epoch: of rows that only come, and of a table."""

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from dagster_ckpt import over
from dagster_ckpt.operators.over import Over
from dagster_ckpt.runtime.declared.stream import Stream
from dagster_ckpt.testing import run_batches
from tests.spark.streams import StreamUnderTest
from tests.spark.test_several_steps import drop, rows_of
from tests.spark.test_the_first_rows_of_each_key import EPOCHS, in_batch, totals

FUNCTIONS: dict[str, tuple[Over, str]] = {
    "number": (over.row_number(), "row_number() OVER ({w})"),
    "place": (over.rank(), "rank() OVER ({peers})"),
    "dense": (over.dense_rank(), "dense_rank() OVER ({peers})"),
    "share": (over.percent_rank(), "percent_rank() OVER ({peers})"),
    "below": (over.cume_dist(), "cume_dist() OVER ({peers})"),
    "half": (over.ntile(2), "ntile(2) OVER ({w})"),
    "before": (over.lag("{v}"), "lag({v}) OVER ({w})"),
    "behind": (over.lead("{v}", 2, -1), "lead({v}, 2, -1L) OVER ({w})"),
    "running": (over.sum("{v}", rows=(None, 0)), "sum({v}) OVER ({w} ROWS UNBOUNDED PRECEDING)"),
    "with_peers": (over.sum("{v}"), "sum({v}) OVER ({peers})"),
    "least": (over.min("{v}", rows=(-1, 1)), "min({v}) OVER ({w} ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING)"),
    "mean": (over.avg("{v}", rows=(-2, 0)), "avg({v}) OVER ({w} ROWS 2 PRECEDING)"),
    "second": (over.nth_value("{v}", 2, rows=(None, 0)), "nth_value({v}, 2) OVER ({w} ROWS UNBOUNDED PRECEDING)"),
    "all": (over.count(rows=(None, None)), "count(*) OVER (PARTITION BY {k})"),
}


def functions(value: str, names: list[str]) -> dict[str, Over]:
    of_value = {name: {**FUNCTIONS[name][0].spelling()} for name in names}
    return {name: Over.of({**each, "column": value if each["column"] else None}) for name, each in of_value.items()}


def query(table: str, key: str, value: str, tie: str, names: list[str]) -> str:
    peers = f"PARTITION BY {key} ORDER BY {value} DESC"
    spelled = {name: FUNCTIONS[name][1].format(v=value, k=key, w=f"{peers}, {tie}", peers=peers) for name in names}
    return f"SELECT *, {', '.join(f'{text} AS {name}' for name, text in spelled.items())} FROM {table}"


def check(stream: StreamUnderTest, spark: SparkSession, text: str) -> None:
    epochs = [each.epoch for each in stream.history().manifest().retained]
    assert len(epochs) == len(EPOCHS)
    for number, epoch in enumerate(epochs):
        assert stream.rows(epoch) == in_batch(spark, EPOCHS[: number + 1], text)


def test_over_a_table_that_changes(spark: SparkSession, tmp_path: Path) -> None:
    stream, folder, names = StreamUnderTest(spark, tmp_path), tmp_path / "rows", list(FUNCTIONS)
    for number, rows in enumerate(EPOCHS):
        drop(folder, number, rows)

    def declared(session: SparkSession) -> Stream:
        return totals(session, folder).key_by("early").over("total desc", **functions("total", names))

    stream.run(declared)
    check(stream, spark, query("{totals}", "early", "total", "shop", names))


def test_over_rows_that_only_come(spark: SparkSession, tmp_path: Path) -> None:
    names = ["place", "before", "running", "with_peers"]
    stream, folder = StreamUnderTest(spark, tmp_path), tmp_path / "rows"
    for number, rows in enumerate(EPOCHS):
        drop(folder, number, rows)

    def declared(session: SparkSession) -> Stream:
        return rows_of(session, folder).key_by("shop").over("amount desc", **functions("amount", names))

    stream.run(declared)
    check(stream, spark, query("orders", "shop", "amount", "order", names))


@pytest.mark.parametrize("default", ["NaN", "Infinity", "-Infinity", "-0.0"])
def test_a_default_that_json_does_not_have(spark: SparkSession, default: str) -> None:
    def read(t: Stream) -> str:
        return f"SELECT k, lead(v, 1, double('{default}')) OVER (ORDER BY k) AS x FROM t"

    rows = pa.table({"k": [1, 2], "v": [1.5, 2.5]})
    found = {row["k"]: row["x"] for row in run_batches(read, {"t": [rows]}, spark=spark).to_pylist()}
    assert {k: repr(x) for k, x in found.items()} == {1: "2.5", 2: repr(float(default))}
