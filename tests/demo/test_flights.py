"""Preparing the year: nothing lost, nothing guessed, every moment right."""

import re
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pytest

from demo.flights import NEW_YORK, Year, cleaned, prepared, raw_flights

ARROW_OF_SPARK = {
    "timestamp": pl.Datetime("us", "UTC"),
    "double": pl.Float64(),
    "int": pl.Int32(),
    "string": pl.String(),
}


def flight(**changes: object) -> pl.DataFrame:
    """One raw flight, from New York on a winter's morning."""
    usual: dict[str, object] = {
        "year": 2013,
        "month": 1,
        "day": 15,
        "sched_dep_time": 600,
        "dep_delay": 0,
        "carrier": "UA",
        "flight": 1,
        "tailnum": "N1",
        "origin": "EWR",
        "dest": "SFO",
        "distance": 2565,
    }
    return pl.DataFrame([usual | changes], schema_overrides={"dep_delay": pl.Int64})


def departed_at(**changes: object) -> object:
    return cleaned(flight(**changes))["departed_at"].item()


def test_the_year_has_a_file_a_day_and_every_flight_of_the_package(year: Year) -> None:
    assert len(year.days) == 365
    assert [year.days[0].name, year.days[-1].name] == ["2013-01-01.parquet", "2013-12-31.parquet"]
    assert (year.flights, year.cancelled) == (336_776, 8_255)


def test_the_files_have_the_columns_that_the_assets_declare(year: Year) -> None:
    # Read as text: importing the assets would load Spark and Dagster for a string.
    source = (Path(__file__).parents[2] / "assets" / "flights.py").read_text()
    declared = re.search(r'SCHEMA = """(.*?)"""', source, re.DOTALL)
    assert declared is not None
    columns = [column.split() for column in declared.group(1).split(",")]
    expected = {name: ARROW_OF_SPARK[kind] for name, kind in columns}
    assert dict(pl.read_parquet_schema(year.days[100])) == expected


def test_departures_agree_with_the_wall_clock_that_the_package_recorded(year: Year) -> None:
    recorded = raw_flights(columns=("dep_time", "time_hour"))
    ours = cleaned(raw_flights())
    wall_clock = ours["departed_at"].dt.convert_time_zone(NEW_YORK)
    minutes = wall_clock.dt.hour().cast(pl.Int64) * 100 + wall_clock.dt.minute().cast(pl.Int64)
    assert minutes.equals((recorded["dep_time"] % 2400).rename("departed_at"), null_equal=True)
    assert (
        ours["scheduled_at"]
        .dt.truncate("1h")
        .equals(recorded["time_hour"].str.to_datetime(time_zone="UTC", time_unit="us"))
    )


def test_a_cancelled_flight_has_no_departure() -> None:
    assert departed_at(dep_delay=None) is None


def test_a_flight_delayed_past_midnight_leaves_the_next_day() -> None:
    assert departed_at(sched_dep_time=2359, dep_delay=2) == datetime(2013, 1, 16, 5, 1, tzinfo=UTC)


def test_a_flight_that_leaves_early_before_midnight_leaves_the_day_before() -> None:
    assert departed_at(sched_dep_time=1, dep_delay=-2) == datetime(2013, 1, 15, 4, 59, tzinfo=UTC)


def test_summer_is_four_hours_from_utc_and_winter_five() -> None:
    assert departed_at(month=7) == datetime(2013, 7, 15, 10, 0, tzinfo=UTC)
    assert departed_at(month=1) == datetime(2013, 1, 15, 11, 0, tzinfo=UTC)


def test_a_flight_planned_in_an_hour_that_does_not_exist_is_refused() -> None:
    with pytest.raises(pl.exceptions.ComputeError):
        cleaned(flight(month=3, day=10, sched_dep_time=230))


def test_a_prepared_year_is_not_made_again(year: Year) -> None:
    folder = year.days[0].parent
    before = {day: day.stat().st_mtime_ns for day in folder.iterdir()}
    assert prepared(folder) == year
    assert {day: day.stat().st_mtime_ns for day in folder.iterdir()} == before


def test_nothing_is_left_where_preparing_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr("demo.flights.write_days", fail)
    with pytest.raises(OSError, match="no space left"):
        prepared(tmp_path / "flights")
    assert list(tmp_path.iterdir()) == []
