"""Preparing the weather: every record once, in the file of its day."""

from datetime import UTC, datetime
from pathlib import Path

import polars as pl

from demo.weather import cleaned_weather, prepared_weather, raw_weather


def test_the_year_has_every_record_once_a_file_a_day(tmp_path: Path) -> None:
    folder = tmp_path / "weather"
    assert prepared_weather(folder) == 26_115 == raw_weather().height
    assert prepared_weather(folder) == 26_115, "a second time it is there already"
    written = pl.read_parquet(folder)
    assert written.height == 26_115
    assert set(written["origin"].unique()) == {"EWR", "JFK", "LGA"}
    assert len(list(folder.glob("*.parquet"))) == raw_weather().select(pl.struct("month", "day").n_unique()).item()


def test_a_records_day_is_new_yorks_and_its_moment_utc() -> None:
    late = cleaned_weather(raw_weather().filter((pl.col("month") == 7) & (pl.col("day") == 4) & (pl.col("hour") == 23)))
    assert set(late["measured_at"]) == {datetime(2013, 7, 5, 3, tzinfo=UTC)}
    assert set(late["day"].dt.to_string()) == {"2013-07-04"}
