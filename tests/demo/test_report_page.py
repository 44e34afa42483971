"""The report: the latest carrier first, and those that are late in another colour."""

import re

import polars as pl
import pytest

pytest.importorskip("matplotlib", reason="`make setup` installs it")

from assets.report_page import page

DELAYS = pl.DataFrame(
    {
        "carrier": ["AA", "<9>", "UA"],
        "flights": [2_000, 5, 1_000],
        "mean_delay": [3.25, -1.0, 17.0],
        "worst_delay": [40.0, 0.0, 1_301.0],
    }
)
LATE = DELAYS.filter(pl.col("carrier") == "UA")


@pytest.fixture(scope="module")
def made() -> str:
    return page(DELAYS, LATE)


def test_it_needs_no_other_file(made: str) -> None:
    assert "src=" not in made
    assert "<link" not in made
    assert made.count("<svg") == made.count("</svg>") == 1


def test_the_latest_carrier_comes_first_and_is_marked(made: str) -> None:
    rows = re.findall(r'<tr( class="late")?><td>(.*?)</td><td>(.*?)</td>', made)
    assert rows == [
        (' class="late"', "United Air Lines", "1,000"),
        ("", "American Airlines", "2,000"),
        ("", "&lt;9&gt;", "5"),
    ]
    assert "<strong" in made
    assert "1,000 departures" in made


def test_it_is_drawn_before_there_is_anything() -> None:
    assert "<svg" in page(DELAYS.clear(), LATE.clear())


def test_the_same_tables_make_the_same_page(made: str) -> None:
    assert page(DELAYS, LATE) == made
