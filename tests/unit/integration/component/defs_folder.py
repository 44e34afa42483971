"""A project with a `defs` folder, loaded as Dagster loads it."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from textwrap import dedent

import dagster as dg
import pytest

WARNINGS_OF_DAGSTER = pytest.mark.filterwarnings(
    "ignore::dagster.BetaWarning",
    "ignore::dagster.PreviewWarning",
    "ignore:.parse_obj_as. is deprecated:DeprecationWarning",
)
"""Loading YAML, Dagster calls what it or pydantic warns of."""

STORE = """
  checkpoints: {url: "file:///nowhere/checkpoints"}
  spark: {spark.master: "local[1]"}
"""


@contextmanager
def loaded(root: Path, files: Mapping[str, str], name: str = "a_project_with_components") -> Iterator[dg.Definitions]:
    """The definitions of a project with these files in its `defs` folder."""
    root.mkdir(exist_ok=True)
    (root / "pyproject.toml").write_text(
        f'[tool.dg]\ndirectory_type = "project"\n[tool.dg.project]\nroot_module = "{name}"\n'
    )
    folder = root / name / "defs"
    folder.mkdir(parents=True)
    for package in (folder, folder.parent):
        (package / "__init__.py").touch()
    for file, text in files.items():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(dedent(text))
    known = set(sys.modules)
    sys.path.insert(0, str(root))
    try:
        defs = dg.load_from_defs_folder(path_within_project=folder.parent)
        dg.Definitions.validate_loadable(defs)
        yield defs
    finally:
        sys.path.remove(str(root))
        for module in set(sys.modules) - known:
            if module.split(".")[0] == name:
                del sys.modules[module]
