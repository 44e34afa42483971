"""`dg scaffold defs dagster_ckpt.StreamingComponent` writes files that load as they are."""

import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from tomllib import loads

import dagster as dg
import pytest
from dagster.components.component_scaffolding import scaffold_object

from tests.unit.integration.component.defs_folder import WARNINGS_OF_DAGSTER, loaded

pytestmark = WARNINGS_OF_DAGSTER

PROJECT = loads((Path(__file__).parents[4] / "pyproject.toml").read_text())["project"]


def scaffolded(
    folder: Path, scaffold_format: str = "yaml", *, append: bool = False, component: str = "StreamingComponent"
) -> None:
    scaffold_object(folder, f"dagster_ckpt.{component}", None, scaffold_format, folder.parent, append)


@pytest.mark.parametrize(("scaffold_format", "file"), [("yaml", "defs.yaml"), ("python", "component.py")])
def test_a_scaffolded_stream_loads(tmp_path: Path, scaffold_format: str, file: str) -> None:
    scaffolded(tmp_path / "delay_by_carrier", scaffold_format)
    text = (tmp_path / "delay_by_carrier" / file).read_text()
    resources = "import dagster as dg\n\nresources = dg.Definitions(resources={'checkpoints': None, 'spark': None})\n"
    more = {"resources.py": resources} if scaffold_format == "python" else {}
    with loaded(tmp_path / "project", {f"delay_by_carrier/{file}": text, **more}) as defs:
        [node] = [
            defs.get_repository_def().asset_graph.get(key)
            for key in defs.get_repository_def().asset_graph.executable_asset_keys
        ]
        assert node.key == dg.AssetKey("delay_by_carrier")
        assert "How many rows have come of each key" in (node.description or "")


@pytest.mark.parametrize(("scaffold_format", "file"), [("yaml", "defs.yaml"), ("python", "component.py")])
def test_a_scaffolded_delivery_loads(tmp_path: Path, scaffold_format: str, file: str) -> None:
    scaffolded(tmp_path / "in_files", scaffold_format, component="DeliveryComponent")
    text = (tmp_path / "in_files" / file).read_text()
    resources = "import dagster as dg\n\nresources = dg.Definitions(resources={'checkpoints': None})\n"
    more = {"resources.py": resources} if scaffold_format == "python" else {}
    with loaded(tmp_path / "project", {f"in_files/{file}": text, **more}) as defs:
        graph = defs.get_repository_def().asset_graph
        assert graph.executable_asset_keys == {dg.AssetKey("in_files")}
        assert graph.get(dg.AssetKey("in_files")).parent_keys == {dg.AssetKey("my_stream")}
        assert (graph.get(dg.AssetKey("in_files")).kinds) == {"parquet"}


@pytest.mark.parametrize(("scaffold_format", "file"), [("yaml", "defs.yaml"), ("python", "component.py")])
def test_a_scaffolded_folder_of_sql_loads(tmp_path: Path, scaffold_format: str, file: str) -> None:
    scaffolded(tmp_path / "per_key", scaffold_format, component="StreamingSqlComponent")
    texts = {f"per_key/{name}": (tmp_path / "per_key" / name).read_text() for name in (file, "per_key.sql")}
    resources = "import dagster as dg\n\nresources = dg.Definitions(resources={'checkpoints': None, 'spark': None})\n"
    more = {"resources.py": resources} if scaffold_format == "python" else {}
    with loaded(tmp_path / "project", {**texts, **more}) as defs:
        graph = defs.get_repository_def().asset_graph
        assert graph.executable_asset_keys == {dg.AssetKey("per_key")}
        assert graph.get(dg.AssetKey("per_key")).parent_keys == {dg.AssetKey("per_key_source")}


def test_a_second_stream_in_a_file_is_appended(tmp_path: Path) -> None:
    scaffolded(tmp_path / "streams")
    scaffolded(tmp_path / "streams" / "defs.yaml", append=True)
    text = (tmp_path / "streams" / "defs.yaml").read_text()
    assert text.count("type: dagster_ckpt.StreamingComponent\n") == 2
    first, second = text.split("---\n")
    assert first == second


def test_dagsters_tools_find_the_component_by_its_entry_point() -> None:
    [(name, value)] = PROJECT["entry-points"]["dagster_dg_cli.registry_modules"].items()
    module = EntryPoint(name, value, "dagster_dg_cli.registry_modules").load()
    from dagster.components.core.package_entry import get_package_objects_in_module

    assert [name for name, _ in sorted(get_package_objects_in_module(module))] == [
        "DeliveryComponent",
        "StreamingComponent",
        "StreamingSqlComponent",
    ]
    assert "dagster_ckpt" in sys.modules
