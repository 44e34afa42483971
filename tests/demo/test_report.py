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
            Outcome("departures", stood, rows_per_second=3285.2, equal=True),
            Outcome("delay_by_carrier", stood, rows_per_second=3285.2, equal=False, kill=Kill(21, 23, 12.34)),
            Outcome("top_aircraft", Standing(2, 1, 328_521), rows_per_second=0.0, equal=True),
        ]
    )
    departures, delays, top = (line for line in screen.getvalue().splitlines() if "328,521" in line)
    assert departures.split() == ["departures", "40", "328,521", "3,285", "yes"]
    assert delays.split() == ["delay_by_carrier", "40", "328,521", "3,285", "21", "12.3", "s", "no"]
    assert top.split() == ["top_aircraft", "1", "328,521", "yes"]


def test_the_table_fits_an_old_terminal() -> None:
    report, screen = shown(width=80)
    stood = Standing(epoch=12_041, epochs=12_040, rows=336_776, days=365)
    report.outcome([Outcome("busiest_aircraft", stood, 12_345.0, equal=True, kill=Kill(12_021, 12_023, 123.4))])
    assert "busiest_aircraft" in screen.getvalue()
    assert "…" not in screen.getvalue()
    assert len([line for line in screen.getvalue().splitlines() if "12,0" in line]) == 1


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
