"""A folder of SQL in YAML is what `streaming_sql` makes of it."""

from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from dagster_ckpt import InvalidPipelineError, StreamingSqlComponent
from dagster_ckpt.integration.asset_options import SharedOptions
from dagster_ckpt.integration.component.streaming_sql_component import _OPTIONS
from dagster_ckpt.integration.declared.streaming_function import of_asset
from dagster_ckpt.integration.recovery.sensor_check import is_watched
from tests.unit.integration.component.defs_folder import STORE, WARNINGS_OF_DAGSTER, loaded

pytestmark = WARNINGS_OF_DAGSTER

YAML = f"""type: dagster_ckpt.StreamingSqlComponent
attributes:
  path: models
  ins: {{buyers: shop/customers}}
  sources: {{orders: .streams.orders}}
  key_prefix: [mart]
  mode: continuous
  checkpoint_interval: 1s
  owners: ["team:shop"]
  recovery: {{max_attempts: 9}}
{STORE}"""
PYTHON = """
from dagster_ckpt import source

orders = source("orders", lambda spark: spark.readStream.format("rate").load())
"""
FILES = {
    "shop/defs.yaml": YAML,
    "shop/streams.py": PYTHON,
    "shop/__init__.py": "",
    "shop/models/spent.sql": "SELECT value, count(*) AS n FROM orders JOIN buyers USING (value) GROUP BY value",
    "shop/models/top.sql": """
        CREATE MATERIALIZED VIEW top TBLPROPERTIES ('dagster_ckpt.mode' = 'available_now')
        AS SELECT * FROM spent ORDER BY n LIMIT 1
    """,
}


def test_a_folder_of_sql_in_yaml(tmp_path: Path) -> None:
    with loaded(tmp_path, FILES) as defs:
        repository = defs.get_repository_def()
        graph = repository.asset_graph
        spent, top = dg.AssetKey(["mart", "spent"]), dg.AssetKey(["mart", "top"])
        assert graph.executable_asset_keys == {spent, top}
        assert graph.get(spent).parent_keys == {dg.AssetKey(["mart", "orders"]), dg.AssetKey(["shop", "customers"])}
        assert graph.get(spent).owners == ["team:shop"]
        assert is_watched(spent, repository.sensor_defs)
        options = {key: _options(defs, key) for key in (spent, top)}
        assert {key: each.mode for key, each in options.items()} == {spent: "continuous", top: "available_now"}
        assert {each.recovery.max_attempts for each in options.values()} == {9}


def _options(defs: dg.Definitions, key: dg.AssetKey) -> Any:
    streaming = of_asset(defs.get_assets_def(key))
    assert streaming is not None
    return streaming.options


def test_a_mistake_in_a_file_is_shown_with_its_place(tmp_path: Path) -> None:
    files = {**FILES, "shop/models/top.sql": "\n\nSELECT * FROM spend"}
    with pytest.raises(Exception, match="Error while building definitions for shop") as failed, loaded(tmp_path, files):
        pass
    assert "Did you mean 'spent'?" in str(failed.value.__cause__)
    assert str(failed.value.__cause__).endswith("models/top.sql, line=3")


def test_the_attributes_are_options_with_their_defaults() -> None:
    assert {*_OPTIONS} <= {*SharedOptions.__annotations__}
    component = StreamingSqlComponent(path="/nowhere")
    with pytest.raises(InvalidPipelineError, match="path=/nowhere"):
        dg.component_defs(component=component)
