"""Each run of the demo has a folder of its own, and none takes away another's."""

import os
from pathlib import Path

import pytest

from demo.errors import DemoError
from demo.run_folder import RunFolder, current, fresh


def leave(folder: RunFolder) -> None:
    os.close(folder.lock)


def runs_in(path: Path) -> set[Path]:
    return {entry for entry in path.iterdir() if not entry.is_symlink()}


def named(path: Path, name: str) -> RunFolder:
    """A fresh folder under a name of the test's choice: real ones hold the second they were made in."""
    folder = fresh(path)
    folder.path.rename(path / name)
    (path / "current").unlink()
    (path / "current").symlink_to(name)
    return RunFolder(path / name, folder.lock)


def test_a_run_gets_an_empty_inbox_and_no_store(tmp_path: Path) -> None:
    folder = fresh(tmp_path)
    assert list(folder.inbox.iterdir()) == []
    assert folder.store == f"file://{folder.path}/checkpoints"
    assert not (folder.path / "checkpoints").exists()
    leave(folder)


def test_the_newest_run_is_the_current_one(tmp_path: Path) -> None:
    assert current(tmp_path) is None
    leave(named(tmp_path, "1"))
    leave(named(tmp_path, "2"))
    found = current(tmp_path)
    assert found is not None
    assert found.path == tmp_path / "2"
    leave(found)


def test_a_run_in_use_is_not_opened_twice(tmp_path: Path) -> None:
    folder = fresh(tmp_path)
    with pytest.raises(DemoError, match="still runs here"):
        current(tmp_path)
    leave(folder)


def test_of_earlier_runs_the_newest_and_those_in_use_stay(tmp_path: Path) -> None:
    leave(named(tmp_path, "1"))
    in_use = named(tmp_path, "2")
    leave(named(tmp_path, "3"))
    leave(named(tmp_path, "4"))
    newest = fresh(tmp_path)
    assert runs_in(tmp_path) == {tmp_path / "2", tmp_path / "4", newest.path}
    leave(in_use)
    leave(newest)
