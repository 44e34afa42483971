from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.plan import PLANS
from benchmarks.report.figures import Figures
from benchmarks.report.headlines import PAGES, Headline, fill, from_bench, load, publish
from benchmarks.results import load as load_cells
from tests.chaos.results import headline

ROOT = Path(__file__).parents[3]
LINE = {"commit": "abc", "at": "2026-11-28T15:00:00+00:00", "seconds": 9.0, "lost": 0, "doubled": 0, "compared": True}


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_a_page_shows_the_figures_of_the_file(page: Path) -> None:
    text = (ROOT / page).read_text()
    assert text == fill(text, load(ROOT)), "fill it: python -m benchmarks.report.headlines"
    assert text.count("<!-- figures: headlines -->") == 1


def test_the_file_has_what_the_bench_measured() -> None:
    cells = load_cells(ROOT / "docs/benchmarks")
    measured = from_bench(Figures({name: each for name, each in cells.items() if name in PLANS["full"]}, "now"))
    assert len(measured) == 7, "a cell that the figures need is missing"
    assert measured.items() <= load(ROOT).items()


def test_publishing_replaces_a_figure_and_fills_the_pages(tmp_path: Path) -> None:
    for page in PAGES:
        (tmp_path / page).parent.mkdir(exist_ok=True)
        (tmp_path / page).write_text("# A page\n<!-- figures: headlines -->\n<!-- end -->\nEnd.\n")
    old = Headline("a join", "2 x", "make bench", "2026-01-01", "abc")
    publish(tmp_path, {"join": old, "kills": old})
    publish(tmp_path, {"join": replace(old, figure="3 x")})
    assert {name: each.figure for name, each in load(tmp_path).items()} == {"join": "3 x", "kills": "2 x"}
    for page in PAGES:
        assert "| a join | 3 x | `make bench` | 2026-01-01, abc |" in (tmp_path / page).read_text()


def test_kills_of_the_newest_commit_are_published() -> None:
    lines = [{**LINE, "commit": "old", "seconds": 99.0}, LINE, {**LINE, "seconds": 11.0}, {**LINE, "seconds": None}]
    assert headline(lines)["kills"].figure == "10.0 s at the median of 2 kills, 11.0 s for 95 of 100"
    assert headline([]) == {}


@pytest.mark.parametrize("wrong", [{"lost": 1}, {"doubled": 2}, {"compared": False}])
def test_kills_that_prove_nothing_are_not_published(wrong: dict[str, object]) -> None:
    assert headline([LINE, {**LINE, **wrong}]) == {}
