"""The project of `docs/components.md`, file by file as the page has them, loads; its test runs."""

import re
from pathlib import Path

import dagster as dg
import pytest
import yaml
from jsonschema import Draft202012Validator

from dagster_ckpt import StreamingComponent
from tests.unit.integration.component.defs_folder import WARNINGS_OF_DAGSTER, loaded

pytestmark = WARNINGS_OF_DAGSTER

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/components.md").read_text()
FILES: dict[str, str] = dict(
    re.findall(r"^```(?:yaml|python)\n# src/shop/defs/(\S+)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
)
OWN = '  checkpoints:\n    url: "file://{{ context.project_root }}/checkpoints"\n  spark:\n    spark.master: local[2]\n'


def test_the_files_of_the_page_are_a_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BROKERS", "localhost:9092")
    monkeypatch.setenv("SHOP_URL", "postgresql://db/shop")
    monkeypatch.setenv("CHECKPOINTS", tmp_path.as_uri())
    first = FILES["delay_by_carrier/defs.yaml"]
    assert first.endswith(OWN), "the first example shows both ways, and a project has one of them"
    with loaded(tmp_path, {**FILES, "delay_by_carrier/defs.yaml": first.removesuffix(OWN)}) as defs:
        graph = defs.get_repository_def().asset_graph
        streams = {file.partition("/")[0] for file in FILES if file.endswith("defs.yaml")}
        assert {key.to_user_string() for key in graph.executable_asset_keys} == streams
        assert graph.get(dg.AssetKey("orders")).parent_keys == {dg.AssetKey("orders_topic")}
        checks = {key.name for key in graph.asset_check_keys if key.asset_key == dg.AssetKey("large_orders")}
        assert checks >= {"amounts_are_plausible", "orders_are_recent"}
    with loaded(tmp_path / "alone", {"delay_by_carrier/defs.yaml": first}, "the_first_example_alone") as defs:
        assert defs.resources is not None


def test_each_step_of_the_table_is_one() -> None:
    rows = re.findall(r"^\| (`.*?`) \| `", PAGE.partition("## Steps")[2].partition("An aggregate is")[0], re.MULTILINE)
    steps = [yaml.safe_load(step) for row in rows for step in re.findall(r"`(\w+: .*?)`", row)]
    validator = Draft202012Validator(StreamingComponent.model().model_json_schema())
    assert {name for step in steps for name in step} == {
        *(
            "where",
            "select",
            "with_columns",
            "with_watermark",
            "key_by",
            "window",
            "aggregate",
            "deduplicate",
            "top",
            "over",
            "distinct",
        )
    }
    assert list(validator.iter_errors({"asset": {"key": "a"}, "steps": steps})) == []
