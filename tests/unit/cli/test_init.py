import subprocess
import sys
from pathlib import Path

import dagster as dg
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from dagster_ckpt.cli import main, project

FILES = [
    ".env",
    ".gitignore",
    "README.md",
    "definitions.py",
    "defs/__init__.py",
    "departures.py",
    "pyproject.toml",
]


def test_a_project_is_made_in_a_new_folder_with_its_first_rows(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "shop"
    result = CliRunner().invoke(main, ["init", str(folder)])
    assert result.exit_code == 0, result.output
    assert f"cd {folder}\n    dagster dev\n" in result.output
    [rows] = (folder / "data" / "departures").iterdir()
    assert pq.read_table(rows).num_rows == 1_000
    made = [str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()]
    assert sorted(name for name in made if not name.startswith(("data/", ".dagster/", "__pycache__/"))) == FILES
    with dg.DagsterInstance.from_config(str(folder / ".dagster")) as instance:
        assert instance.get_latest_materialization_event(dg.AssetKey("departures")) is not None
    assert (folder / ".env").read_text() == f"DAGSTER_HOME={folder}/.dagster\n", "as absolute as Dagster wants it"
    assert [path.name for path in folder.parent.iterdir()] == ["shop"]


def test_more_rows_need_no_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the project's page and the tutorial say: `python departures.py`, in a second terminal."""
    project.create(tmp_path / "shop")
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    subprocess.run([sys.executable, "departures.py"], cwd=tmp_path / "shop", check=True, capture_output=True)
    assert len(list((tmp_path / "shop/data/departures").iterdir())) == 2
    with dg.DagsterInstance.from_config(str(tmp_path / "shop/.dagster")) as instance:
        assert len(instance.get_runs()) == 2


def test_an_empty_folder_can_be_the_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(project, "_make_first_data", lambda folder: None)
    project.create(tmp_path)
    assert (tmp_path / "definitions.py").exists()


@pytest.mark.parametrize("name", ["notes.txt", "sub"])
def test_a_folder_with_something_in_it_is_refused_and_left_alone(tmp_path: Path, name: str) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    target = tmp_path if name == "sub" else tmp_path / name
    result = CliRunner().invoke(main, ["init", str(target)])
    assert result.exit_code == 1
    assert "is not empty: name a new folder. Nothing was changed." in result.output
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_project_that_was_interrupted_can_be_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(_: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(project, "_make_first_data", killed)
        with pytest.raises(KeyboardInterrupt):
            project.create(tmp_path / "shop")
    assert not (tmp_path / "shop").exists()
    monkeypatch.setattr(project, "_make_first_data", lambda folder: None)
    project.create(tmp_path / "shop")
    assert [path.name for path in tmp_path.iterdir()] == ["shop"]


def test_what_is_missing_is_named_with_the_way_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(project, "find_spec", lambda name: None)
    assert project.missing() == [
        "the Dagster UI: pip install dagster-webserver",
        "Java 17: install it, or set JAVA_HOME",
    ]
