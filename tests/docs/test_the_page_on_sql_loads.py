"""The files of `docs/how-to/sql.md` are a code location, and its test runs."""

import re
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from dagster_ckpt import CheckpointCoordinatorResource, InvalidPipelineError, streaming_sql
from dagster_ckpt.integration.declared.streaming_function import of_asset
from dagster_ckpt.runtime.run_mode import Mode
from tests.docs.shop_store import python_of
from tests.unit.integration.component.defs_folder import STORE, WARNINGS_OF_DAGSTER, loaded

PAGE = (Path(__file__).parents[2] / "docs/how-to/sql.md").read_text()
FILES: dict[str, str] = dict(re.findall(r"^```sql\n-- models/(\S+)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE))


@pytest.fixture
def models(tmp_path: Path) -> Path:
    (tmp_path / "models").mkdir()
    for name, text in FILES.items():
        (tmp_path / "models" / name).write_text(text)
    return tmp_path / "models"


def test_the_first_example_is_a_code_location(models: Path) -> None:
    assert len(FILES) == 3
    names: dict[str, Any] = {"__file__": str(models.parent / "definitions.py")}
    exec(python_of(PAGE)[0], names)
    defs: dg.Definitions = names["defs"]
    dg.Definitions.validate_loadable(defs)
    assert isinstance((defs.resources or {})["checkpoints"], CheckpointCoordinatorResource)
    graph = defs.get_repository_def().asset_graph
    edges = {
        key.to_user_string(): {parent.to_user_string() for parent in graph.get(key).parent_keys}
        for key in graph.executable_asset_keys
    }
    assert edges == {
        "carriers": set(),
        "late_departures": {"departures"},
        "delay_by_carrier": {"departures"},
        "worst_carriers": {"delay_by_carrier", "carriers"},
    }


def test_the_error_on_the_page_is_the_error(models: Path) -> None:
    (models / "delays.sql").write_text("\n\n\nSELECT * FROM departure")
    (models / "worst_carriers.sql").unlink()
    with pytest.raises(InvalidPipelineError) as refused:
        streaming_sql(models)
    shown = " ".join(PAGE.partition("even if the error is Spark's:\n\n")[2].partition("\n\n")[0].split())
    assert str(refused.value).replace(f"{models.parent}/", "") == shown


@WARNINGS_OF_DAGSTER
def test_the_component_of_the_page_loads(tmp_path: Path) -> None:
    [(file, text)] = re.findall(r"^```yaml\n# src/shop/defs/(\S+)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    files = {file: text + STORE, **{f"delays/models/{name}": sql for name, sql in FILES.items()}}
    with loaded(tmp_path, files) as defs:
        graph = defs.get_repository_def().asset_graph
        worst = dg.AssetKey("worst_carriers")
        assert graph.get(worst).parent_keys == {dg.AssetKey("delay_by_carrier"), dg.AssetKey(["shop", "carriers"])}
        streaming = of_asset(defs.get_assets_def(worst))
        assert streaming is not None
        assert streaming.options.mode is Mode.CONTINUOUS


def test_the_test_of_the_page_passes() -> None:
    names: dict[str, Any] = {}
    for block in python_of(PAGE)[1:]:
        exec(block, names)
    names["test_seats"]()
