from pathlib import Path

import pytest

from benchmarks import __main__ as bench
from benchmarks.results import load, save
from tests.unit.benchmarks.made_figures import measured


def test_figures_of_before_go_where_a_cell_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "_OUT", {"full": tmp_path})
    monkeypatch.setattr(bench, "_DATA", tmp_path)
    monkeypatch.setattr(bench, "_ran", lambda plan, cell, folder: False)
    for cell in ("growth/1M", "growth/10M"):
        save(tmp_path / "benchmarks", cell, measured(cell, {}))
    assert not bench._is_measured("full", "growth/1M", "make bench", anew=False)
    assert list(load(tmp_path / "benchmarks")) == ["growth/10M"]
