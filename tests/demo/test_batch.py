"""The oracle itself, against a computation by hand."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import pytest

from demo.batch import EXPECTED
from demo.flights import Year

NO_WEATHER = Path("none")
"""What is not asked for is not read."""

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
    assert EXPECTED["departures"].of(inbox, NO_WEATHER)["flight"].sort().to_list() == [1, 2]


def test_delays_count_only_flights_that_left(inbox: Path) -> None:
    assert EXPECTED["delay_by_carrier"].of(inbox, NO_WEATHER).rows() == [("UA", 2, 3.0, 10.0)]
    assert EXPECTED["delay_by_route"].of(inbox, NO_WEATHER).rows() == [("EWR", "SFO", "UA", 2, 3.0, 10.0)]


def test_late_carriers_are_late_by_more_than_a_quarter_of_an_hour(inbox: Path) -> None:
    assert EXPECTED["late_carriers"].of(inbox, NO_WEATHER).is_empty()
    later = pl.read_parquet(inbox / "1.parquet").with_columns(dep_delay=pl.Series([20.0, 10.5]))
    later.write_parquet(inbox / "1.parquet")
    assert EXPECTED["late_carriers"].of(inbox, NO_WEATHER).rows() == [("UA", 2, 15.25, 20.0)]


def test_an_unknown_aircraft_is_a_row_too(inbox: Path) -> None:
    table = EXPECTED["busiest_aircraft"].of(inbox, NO_WEATHER).sort("tailnum")
    assert table.rows() == [(None, 1, 0, None), ("N1", 3, 2, NOON + timedelta(minutes=10))]


def test_each_departure_has_the_latest_weather_of_the_hour_before(inbox: Path, tmp_path: Path) -> None:
    weather = tmp_path.with_name(f"{tmp_path.name}-weather")
    weather.mkdir()
    moments = [NOON - timedelta(minutes=64), NOON - timedelta(minutes=50), NOON + timedelta(minutes=10)]
    records = pl.DataFrame({"origin": "EWR", "measured_at": moments, "temp": [1.0, 2.0, 3.0]})
    records = records.with_columns(pl.col("measured_at").cast(pl.Datetime("us", "UTC")))
    records.with_columns(wind_speed=0.0, precip=0.0, visib=0.0).write_parquet(weather / "1.parquet")
    table = EXPECTED["departures_with_weather"].of(inbox, weather).sort("departed_at")
    assert table.select("flight", "temp").rows() == [(2, 2.0), (1, 3.0)]


def test_hours_and_rotations_end_where_the_next_begins(inbox: Path) -> None:
    hours = EXPECTED["delays_by_hour"].of(inbox, NO_WEATHER).sort("window_start")
    assert [(row["window_start"], row["flights"]) for row in hours.to_dicts()] == [
        (NOON - timedelta(hours=1), 1),
        (NOON, 1),
    ]
    [rotation] = EXPECTED["aircraft_rotations"].of(inbox, NO_WEATHER).to_dicts()
    assert (rotation["window_start"], rotation["flights"], rotation["miles"]) == (NOON - timedelta(minutes=4), 2, 5130)


def test_slow_routes_are_flown_often_and_ten_minutes_later_than_the_carrier(inbox: Path) -> None:
    assert EXPECTED["slow_routes"].of(inbox, NO_WEATHER).is_empty()
    flight = pl.read_parquet(inbox / "1.parquet").head(1)
    often = [(50, "SFO", 41.0), (50, "BOS", 1.0), (49, "ORD", 99.0), (49, "LAX", -57.0)]
    flights = [
        pl.concat([flight] * number).with_columns(destination=pl.lit(place), dep_delay=delay)
        for number, place, delay in often
    ]
    pl.concat(flights).write_parquet(inbox / "1.parquet")
    assert EXPECTED["slow_routes"].of(inbox, NO_WEATHER).rows() == [("UA", "EWR", "SFO", 50, 41.0, 21.0)]


def test_the_top_aircraft_are_known_and_left_most_often(inbox: Path) -> None:
    table = EXPECTED["top_aircraft"].of(inbox, NO_WEATHER)
    assert table.rows() == [("N1", 2, 3, NOON + timedelta(minutes=10))]
    rows = pl.read_parquet(inbox / "1.parquet")
    others = [rows.head(1).with_columns(tailnum=pl.lit(name)) for name in ("N4", "N3", "N2")]
    pl.concat([rows, *others]).write_parquet(inbox / "1.parquet")
    assert EXPECTED["top_aircraft"].of(inbox, NO_WEATHER)["tailnum"].to_list() == ["N1", "N2", "N3"]


def test_a_day_counts_what_was_on_time_and_adds_up_the_rest(inbox: Path) -> None:
    later = pl.read_parquet(inbox / "1.parquet").with_columns(dep_delay=pl.Series([15.0, 30.0]))
    later.write_parquet(inbox / "1.parquet")
    midnight = NOON.replace(hour=0)
    assert EXPECTED["punctuality_by_day"].of(inbox, NO_WEATHER).rows() == [(midnight, "EWR", 2, 1, 0.5)]


def test_the_keys_name_each_row_of_the_year_once(year: Year, weather: Path) -> None:
    folder = year.days[0].parent
    for name, expected in EXPECTED.items():
        table = expected.of(folder, weather)
        assert table.select(expected.key).n_unique() == table.height, name


def test_the_worst_routes_of_a_carrier_are_at_most_three_that_are_flown_often(year: Year, weather: Path) -> None:
    table = EXPECTED["worst_routes"].of(year.days[0].parent, weather)
    assert table["flights"].to_numpy().min() >= 50
    assert table.group_by("carrier").len()["len"].max() == 3
