"""The oracle: what each stream's table must be, computed by Polars, which shares no code with Spark or with us."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import polars as pl


@dataclass(frozen=True, slots=True)
class Expected:
    """How to compute a stream's table from all of its input, and the columns that name a row of it."""

    key: tuple[str, ...]
    table: Callable[[pl.LazyFrame], pl.LazyFrame]

    def of(self, inbox: Path) -> pl.DataFrame:
        """The table that the files in `inbox` must lead to."""
        return self.table(pl.scan_parquet(inbox)).collect()


def _departed(flights: pl.LazyFrame) -> pl.LazyFrame:
    return flights.filter(pl.col("departed_at").is_not_null())


def _delays(*key: str) -> Callable[[pl.LazyFrame], pl.LazyFrame]:
    delay = pl.col("dep_delay")
    return lambda flights: (
        _departed(flights)
        .group_by(key)
        .agg(flights=pl.len().cast(pl.Int64), mean_delay=delay.mean(), worst_delay=delay.max())
    )


def _aircraft(flights: pl.LazyFrame) -> pl.LazyFrame:
    departed_at = pl.col("departed_at")
    return flights.group_by("tailnum").agg(
        planned=pl.len().cast(pl.Int64),
        flown=departed_at.count().cast(pl.Int64),
        last_departure=departed_at.max(),
    )


EXPECTED = {
    "departures": Expected(("scheduled_at", "carrier", "flight", "origin", "destination"), _departed),
    "delay_by_carrier": Expected(("carrier",), _delays("carrier")),
    "delay_by_route": Expected(("origin", "destination", "carrier"), _delays("origin", "destination", "carrier")),
    "busiest_aircraft": Expected(("tailnum",), _aircraft),
}
"""The main job's streams, by name."""
