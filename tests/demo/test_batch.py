"""The oracle itself, against a computation by hand."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import pytest

from demo.batch import EXPECTED
from demo.flights import Year

NOON = datetime(2013, 1, 1, 12, tzinfo=UTC)


@pytest.fixture
def inbox(tmp_path: Path) -> Path:
    """Two days: two departures of one aircraft, a cancelled flight of it, and one that never got an aircraft."""
    planned = [
        ("UA", 1, "N1", "EWR", 10.0),
        ("UA", 2, "N1", "EWR", -4.0),
        ("UA", 3, "N1", "EWR", None),
        ("AA", 4, None, "LGA", None),
    ]
    rows = pl.DataFrame(
        [
            {
                "scheduled_at": NOON,
                "departed_at": None if delay is None else NOON + timedelta(minutes=delay),
                "dep_delay": delay,
                "carrier": carrier,
                "flight": flight,
                "tailnum": tailnum,
                "origin": origin,
                "destination": "SFO",
                "distance": 2565,
            }
            for carrier, flight, tailnum, origin, delay in planned
        ],
    )
    rows[:2].write_parquet(tmp_path / "1.parquet")
    rows[2:].with_columns(
        pl.col("departed_at").cast(pl.Datetime("us", "UTC")), pl.col("dep_delay").cast(pl.Float64)
    ).write_parquet(tmp_path / "2.parquet")
    return tmp_path


def test_departures_are_the_flights_that_left(inbox: Path) -> None:
    assert EXPECTED["departures"].of(inbox)["flight"].sort().to_list() == [1, 2]


def test_delays_count_only_flights_that_left(inbox: Path) -> None:
    assert EXPECTED["delay_by_carrier"].of(inbox).rows() == [("UA", 2, 3.0, 10.0)]
    assert EXPECTED["delay_by_route"].of(inbox).rows() == [("EWR", "SFO", "UA", 2, 3.0, 10.0)]


def test_an_aircraft_that_nobody_knows_is_a_row_too(inbox: Path) -> None:
    table = EXPECTED["busiest_aircraft"].of(inbox).sort("tailnum")
    assert table.rows() == [(None, 1, 0, None), ("N1", 3, 2, NOON + timedelta(minutes=10))]


def test_the_keys_name_each_row_of_the_year_once(year: Year) -> None:
    folder = year.days[0].parent
    for name, expected in EXPECTED.items():
        table = expected.of(folder)
        assert table.select(expected.key).n_unique() == table.height, name
