"""Each Python block of the how-to pages defines what it says, and each `dagster-ckpt` line runs."""

from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from dagster_ckpt import CheckpointStore
from dagster_ckpt.integration.declared.streaming_function import of_asset
from tests.docs import shop_store

ROOT = Path(__file__).parents[2]
PAGES = {
    str(page.relative_to(ROOT / "docs")): page.read_text()
    for page in [*ROOT.glob("docs/install.md"), *sorted((ROOT / "docs/how-to").rglob("*.md"))]
    # Their examples start Spark: tests/docs/test_what_the_pages_show_runs.py, and test_the_page_on_sql_loads.py
    if page.name not in {"test.md", "sql.md"}
}
WITH_PYTHON = [name for name, page in PAGES.items() if shop_store.python_of(page)]
WITHOUT_STREAMS = {"clusters", "stores"}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> CheckpointStore:
    return shop_store.make(tmp_path_factory.mktemp("store"))


@pytest.mark.parametrize("page", WITH_PYTHON)
def test_the_python_of_a_page_defines_streams_and_resources(page: str) -> None:
    names: dict[str, Any] = {}
    for block in shop_store.python_of(PAGES[page]):
        exec(block, names)
    assets = [each for each in names.values() if isinstance(each, dg.AssetsDefinition)]
    streams = [each for each in assets if of_asset(each) is not None]
    assert streams or Path(page).parent.name in WITHOUT_STREAMS


@pytest.mark.parametrize("page", [name for name, page in PAGES.items() if shop_store.lines_of(page)])
def test_the_command_lines_of_a_page_run(
    page: str, store: CheckpointStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for line in shop_store.lines_of(PAGES[page]):
        assert shop_store.run(line, store)
