"""The proof at the end of the demo: right tables pass, any other does not."""

import io
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest
from rich.console import Console

from demo.batch import EXPECTED
from demo.feeder import drop
from demo.flights import Year
from demo.proof import prove
from demo.report import Report


@pytest.fixture
def inbox(year: Year, tmp_path: Path) -> Path:
    """A week of flights."""
    for day in year.days[:7]:
        drop(day, tmp_path / "inbox")
    return tmp_path / "inbox"


def read(inbox: Path, weather: Path, spoil: Callable[[pl.DataFrame], pl.DataFrame]) -> Callable[[str], pa.Table]:
    """The right table of each stream, spoilt for busiest_aircraft."""

    def table(stream: str) -> pa.Table:
        right = EXPECTED[stream].of(inbox, weather)
        return (spoil(right) if stream == "busiest_aircraft" else right).to_arrow()

    return table


def test_right_tables_are_equal_and_nothing_is_printed(inbox: Path, weather: Path) -> None:
    screen = io.StringIO()
    equal = prove(read(inbox, weather, lambda table: table.reverse()), inbox, weather, Report(Console(file=screen)))
    assert equal == dict.fromkeys(EXPECTED, True)
    assert screen.getvalue() == ""


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda table: table.filter(pl.col("tailnum").is_not_null()), "1 missing"),
        (lambda table: pl.concat([table, table.head(2)]), "2 surplus"),
        (lambda table: table.with_columns(pl.col("planned") + 1), "changed"),
    ],
)
def test_a_wrong_table_is_not_equal_and_its_rows_are_shown(
    inbox: Path, weather: Path, spoil: Callable[[pl.DataFrame], pl.DataFrame], said: str
) -> None:
    screen = io.StringIO()
    equal = prove(read(inbox, weather, spoil), inbox, weather, Report(Console(file=screen, width=200)))
    assert [stream for stream, right in equal.items() if not right] == ["busiest_aircraft"]
    assert said in screen.getvalue()
