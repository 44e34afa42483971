"""The report: the epochs it is from, the latest carrier first, and those that are late in another colour."""

import re
from datetime import UTC, datetime

import polars as pl

from assets.report_page import ShownEpoch, page

DELAYS = pl.DataFrame(
    {
        "carrier": ["AA", "<9>", "UA"],
        "flights": [2_000, 5, 1_000],
        "mean_delay": [3.0, -1.0, 19.0],
        "worst_delay": [40.0, 0.0, 1_301.0],
    }
)
LATE = DELAYS.filter(pl.col("carrier") == "UA")
CUT = [
    ShownEpoch("delay_by_carrier", 41, datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), datetime(2014, 1, 1, 4, tzinfo=UTC)),
    ShownEpoch(
        "late_carriers", 17, datetime(2026, 1, 2, 3, 4, 6, tzinfo=UTC), made_from="epoch 41 of delay_by_carrier"
    ),
]
MADE = page(DELAYS, LATE, CUT)


def test_it_needs_no_other_file() -> None:
    assert "src=" not in MADE
    assert "<link" not in MADE
    assert "url(" not in MADE


def test_it_names_the_epochs_their_commits_and_up_to_which_departure_they_go() -> None:
    pairs = re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", MADE)
    assert pairs == [
        ("epoch", "41"),
        ("committed", "2026-01-02 03:04:05 UTC"),
        ("last departure", "2013-12-31 23:00, New York"),
        ("epoch", "17"),
        ("committed", "2026-01-02 03:04:06 UTC"),
        ("made from", "epoch 41 of delay_by_carrier"),
    ]
    assert MADE.index("<h2>delay_by_carrier</h2>") < MADE.index("<h2>late_carriers</h2>")


def test_the_latest_carrier_comes_first_and_is_marked() -> None:
    rows = re.findall(r'<tr( class="late")?><td class="name">(.*?)</td><td>(.*?)</td>', MADE)
    assert rows == [
        (' class="late"', "United Air Lines", "1,000"),
        ("", "American Airlines", "2,000"),
        ("", "&lt;9&gt;", "5"),
    ]
    assert "<strong" in MADE
    assert "1,000 departures" in MADE


def test_a_bar_begins_at_zero_and_early_carriers_have_theirs_on_the_other_side() -> None:
    bars = re.findall(r'class="bar" style="left: (.*?)%; width: (.*?)%"', MADE)
    assert bars == [("5.0", "95.0"), ("5.0", "15.0"), ("0.0", "5.0")]
    assert 'class="quarter" style="left: 80.0%"' in MADE


def test_it_is_drawn_before_there_is_anything() -> None:
    nothing = page(DELAYS.clear(), LATE.clear(), [ShownEpoch("delay_by_carrier", 0, datetime(2026, 1, 2, tzinfo=UTC))])
    assert "none yet" in nothing
    assert "0 departures of 0 carriers" in nothing
