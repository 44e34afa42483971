import os
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.test import environment, place

NO_ROOM = 1 << 62


def test_a_folder_in_memory_is_where_temporary_files_go(tmp_path: Path) -> None:
    folder = place(tmp_path, {}, room_bytes=1)
    assert folder is not None
    assert folder.parent == tmp_path
    assert folder.is_dir()
    assert environment(folder)["TMPDIR"] == str(folder)


def test_without_room_or_with_a_chosen_folder_it_stays_there(tmp_path: Path) -> None:
    assert place(tmp_path, {}, NO_ROOM) is None
    assert place(tmp_path, {"TMPDIR": "/elsewhere"}, room_bytes=1) is None
    assert place(tmp_path / "missing", {}, room_bytes=1) is None
    assert list(tmp_path.iterdir()) == []


def test_without_such_a_folder_the_environment_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", "/elsewhere")
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    ours = {name: environment(None)[name] for name in ("PYTHONPATH", "SPARK_SUBMIT_OPTS")}
    assert environment(None) == {**os.environ, **ours}
    assert environment(None)["TMPDIR"] == "/elsewhere"


def test_a_python_process_compiles_for_all_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    assert "PYTHONDONTWRITEBYTECODE" not in environment(None)


def test_a_python_process_takes_pyspark_from_where_it_is_compiled(tmp_path: Path) -> None:
    given = [str(tmp_path / "python/lib/pyspark.zip"), str(tmp_path / "mine.zip")]
    path = os.pathsep.join([environment(None)["PYTHONPATH"], *given])
    command = [sys.executable, "-c", "import sys; print(*sys.path, sep='\\n')"]
    found = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=True)
    assert [each for each in given if each in found.stdout.splitlines()] == given[1:]
