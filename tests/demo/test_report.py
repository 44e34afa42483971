"""What the person sees says what was found."""

import io

import polars as pl
from rich.console import Console

from demo.comparison import difference
from demo.report import Kill, Outcome, Report
from demo.standing import Standing

TABLE = pl.DataFrame({"carrier": ["AA", None], "flights": [1, 2]})


def shown(width: int = 200) -> tuple[Report, io.StringIO]:
    screen = io.StringIO()
    return Report(Console(file=screen, width=width)), screen


def test_the_table_says_what_was_killed_and_whether_all_is_equal() -> None:
    report, screen = shown()
    stood = Standing(epoch=41, epochs=40, rows=328_521, days=365)
    report.outcome(
        [
            Outcome("departures", stood, seconds=100.0, table_rows=328_521, equal=True),
            Outcome("delay_by_carrier", stood, seconds=100.0, table_rows=16, equal=False, kill=Kill(21, 23, 12.34)),
        ]
    )
    departures, delays = (line for line in screen.getvalue().splitlines() if "328,521" in line)
    assert departures.replace("│", "").split() == ["departures", "40", "328,521", "3,285", "328,521", "yes"]
    assert delays.replace("│", "").split() == ["delay_by_carrier", "40", "328,521", "3,285", "16", "21", "12.3", "no"]


def test_a_difference_shows_the_rows_that_differ() -> None:
    report, screen = shown()
    report.difference("delay_by_carrier", difference(TABLE.with_columns(pl.col("flights") + 1), TABLE, ["carrier"]))
    assert "2 changed rows" in screen.getvalue()
    assert "null" in screen.getvalue()
    assert "flights_expected" in screen.getvalue()


def test_no_difference_says_nothing() -> None:
    report, screen = shown()
    report.difference("delay_by_carrier", difference(TABLE, TABLE, ["carrier"]))
    assert screen.getvalue() == ""


def test_brackets_in_an_error_are_shown_as_they_are() -> None:
    report, screen = shown()
    report.trouble("it did not end. runs=[Run(id='1')]")
    assert "runs=[Run(id='1')]" in screen.getvalue()
