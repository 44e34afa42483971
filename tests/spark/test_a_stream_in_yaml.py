"""Steps in YAML, run by Spark on the batches of a test."""

import re
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
from pyspark.sql import SparkSession

from dagster_ckpt import StreamingComponent
from dagster_ckpt.testing import run_batches

PAGE = (Path(__file__).parents[2] / "docs/components.md").read_text()


def asset_of(**attributes: Any) -> dg.AssetsDefinition:
    component = StreamingComponent.from_attributes_dict(attributes={"asset": {"key": "a"}, **attributes})
    return dg.component_defs(component=component).get_assets_def("a")


def test_the_pages_test_runs(spark: SparkSession) -> None:
    [block] = re.findall(
        r"^```python\n(import dagster.*?)^```$", PAGE.partition("## Test a stream")[2], re.DOTALL | re.MULTILINE
    )
    names: dict[str, Any] = {}
    exec(block, names)
    assert sorted(names["table"].to_pylist(), key=lambda row: row["carrier"]) == [
        {"carrier": "AA", "flights": 1},
        {"carrier": "UA", "flights": 2},
    ]


def test_expressions_are_sparks(spark: SparkSession) -> None:
    steps = [
        {"where": "carrier <> 'DL'"},
        {"with_columns": {"carrier": "lower(carrier)", "of": "'UA'", "half": "delay / {{ env('PARTS', '2') }}"}},
        {"select": ["carrier", "of", "half", "half > 4 AS late"]},
    ]
    asset = asset_of(source={"format": "rate"}, steps=steps)
    batch = pa.table({"carrier": ["UA", "DL"], "delay": [10, 20]})
    assert run_batches(asset, {"source": [batch]}, spark=spark).to_pylist() == [
        {"carrier": "ua", "of": "UA", "half": 5.0, "late": True}
    ]


def test_an_upstream_that_changes_can_be_filtered_and_get_columns(spark: SparkSession) -> None:
    changes = pa.table({"id": [1, 2], "n": [5, 1], "_change_type": ["insert", "insert"]})
    kept = asset_of(upstream="totals", steps=[{"where": "n > 1"}])
    table = run_batches(kept, {"upstream": [changes]}, keys={"upstream": ["id"]}, spark=spark)
    assert table.to_pylist() == [{"id": 1, "n": 5}]
    changed = asset_of(upstream="totals", steps=[{"with_columns": {"m": "n"}}])
    table = run_batches(changed, {"upstream": [changes]}, keys={"upstream": ["id"]}, spark=spark)
    assert table.sort_by("id").to_pylist() == [{"id": 1, "n": 5, "m": 5}, {"id": 2, "n": 1, "m": 1}]
