"""`dagster-ckpt init`: a project that runs as it is. Its files are in `template`; `gitignore` gets its dot here."""

import os
import shutil
import subprocess
import sys
from importlib.resources import as_file, files
from importlib.util import find_spec
from pathlib import Path

import click

_TEMPLATE = files(__name__) / "template"
HOME = ".dagster"


def create(folder: Path) -> None:
    """Make the project in a folder that is new or empty. A crash in the middle leaves only `.<name>.partial` beside it.

    Raises `click.ClickException` if there is something in the folder, or if the first data cannot be made.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise click.ClickException(f"{folder} is not empty: name a new folder. Nothing was changed.")
    folder = folder.absolute()
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    with as_file(_TEMPLATE) as template:
        shutil.copytree(template, partial, ignore=shutil.ignore_patterns("__pycache__"))
    (partial / "gitignore").rename(partial / ".gitignore")
    (partial / ".env").write_text(f"DAGSTER_HOME={folder / HOME}\n")
    (partial / HOME).mkdir()
    (partial / HOME / "dagster.yaml").write_text("# Settings of this Dagster instance.\nnux:\n  enabled: false\n")
    _make_first_data(partial)
    partial.rename(folder)


def missing() -> list[str]:
    """What the project needs and this environment lacks, with the way to get it."""
    lacks = []
    if find_spec("dagster_webserver") is None:
        lacks.append("the Dagster UI: pip install dagster-webserver")
    if not (os.environ.get("JAVA_HOME") or shutil.which("java")):
        lacks.append("Java 17: install it, or set JAVA_HOME")
    return lacks


def _make_first_data(project: Path) -> None:
    # In the project's Dagster instance: a stream is shown as out of sync with an asset that was never materialized.
    environment = {**os.environ, "DAGSTER_HOME": str(project / HOME)}
    command = [sys.executable, "departures.py"]
    made = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)
    if made.returncode:
        raise click.ClickException(f"the first data could not be made:\n{made.stderr}")
