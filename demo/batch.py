"""The oracle: what each stream's table must be, computed by Polars, which shares no code with Spark or with us."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import polars as pl


@dataclass(frozen=True, slots=True)
class Inputs:
    """All rows that the streams read."""

    flights: pl.LazyFrame
    weather: pl.LazyFrame


@dataclass(frozen=True, slots=True)
class Expected:
    """How to compute a stream's table from all of its input, and the columns that name a row of it."""

    key: tuple[str, ...]
    table: Callable[[Inputs], pl.LazyFrame]

    def of(self, flights: Path, weather: Path) -> pl.DataFrame:
        """The table that the files in these folders must lead to."""
        return self.table(Inputs(pl.scan_parquet(flights), pl.scan_parquet(weather))).collect()


def _departed(inputs: Inputs) -> pl.LazyFrame:
    return inputs.flights.filter(pl.col("departed_at").is_not_null())


def _delays(*key: str) -> Callable[[Inputs], pl.LazyFrame]:
    delay = pl.col("dep_delay")
    return lambda inputs: (
        _departed(inputs)
        .group_by(key)
        .agg(flights=pl.len().cast(pl.Int64), mean_delay=delay.mean(), worst_delay=delay.max())
    )


def _late(inputs: Inputs) -> pl.LazyFrame:
    return _delays("carrier")(inputs).filter(pl.col("mean_delay") > 15)


def _worst_routes(inputs: Inputs) -> pl.LazyFrame:
    routes = _delays("origin", "destination", "carrier")(inputs).filter(pl.col("flights") >= 50)
    worst_first = routes.sort("mean_delay", "origin", "destination", descending=[True, False, False])
    return worst_first.group_by("carrier").head(3).select(routes.collect_schema().names())


def _aircraft(inputs: Inputs) -> pl.LazyFrame:
    departed_at = pl.col("departed_at")
    return inputs.flights.group_by("tailnum").agg(
        planned=pl.len().cast(pl.Int64),
        flown=departed_at.count().cast(pl.Int64),
        last_departure=departed_at.max(),
    )


def _slow_routes(inputs: Inputs) -> pl.LazyFrame:
    routes = _delays("origin", "destination", "carrier")(inputs).filter(pl.col("flights") >= 50)
    carriers = _delays("carrier")(inputs).select("carrier", carrier_delay="mean_delay")
    return (
        routes.join(carriers, on="carrier")
        .filter(pl.col("mean_delay") > pl.col("carrier_delay") + 10)
        .select("carrier", "origin", "destination", "flights", "mean_delay", "carrier_delay")
    )


def _top_aircraft(inputs: Inputs) -> pl.LazyFrame:
    known = _aircraft(inputs).filter(pl.col("tailnum").is_not_null())
    return (
        known.sort("flown", "tailnum", descending=[True, False])
        .head(3)
        .select("tailnum", "flown", "planned", "last_departure")
    )


def _by_day(inputs: Inputs) -> pl.LazyFrame:
    delay = pl.col("dep_delay")
    return (
        _departed(inputs)
        .group_by("origin", day=pl.col("departed_at").dt.truncate("1d"))
        .agg(
            flights=pl.len().cast(pl.Int64),
            on_time=(delay <= 15).sum().cast(pl.Int64),
            hours_lost=delay.filter(delay > 15).sum() / 60,
        )
        .select("day", "origin", "flights", "on_time", "hours_lost")
    )


def _with_weather(inputs: Inputs) -> pl.LazyFrame:
    departures = _departed(inputs).select("departed_at", "carrier", "flight", "origin", "destination")
    weather = inputs.weather.select("origin", "measured_at", "temp", "wind_speed", "precip", "visib")
    before = departures.sort("departed_at").join_asof(
        weather.sort("measured_at"),
        left_on="departed_at",
        right_on="measured_at",
        by="origin",
        strategy="backward",
        tolerance="59m59s999999us",
        coalesce=False,
        check_sortedness=False,  # it cannot be checked within groups; both were sorted above
    )
    return before.select(
        "departed_at",
        "carrier",
        "flight",
        "origin",
        "destination",
        "measured_at",
        "temp",
        "wind_speed",
        "precip",
        "visib",
    )


def _by_hour(inputs: Inputs) -> pl.LazyFrame:
    delay, hour = pl.col("dep_delay"), pl.col("departed_at").dt.truncate("1h")
    return (
        _departed(inputs)
        .group_by("origin", window_start=hour)
        .agg(flights=pl.len().cast(pl.Int64), mean_delay=delay.mean(), worst_delay=delay.max())
        .with_columns(window_end=pl.col("window_start") + pl.duration(hours=1))
        .select("origin", "window_start", "window_end", "flights", "mean_delay", "worst_delay")
    )


def _rotations(inputs: Inputs) -> pl.LazyFrame:
    at, gap = pl.col("departed_at"), pl.duration(hours=12)
    session = (at - at.shift()).gt(gap).fill_null(value=True).cum_sum().over("tailnum")
    # Of departures at one moment the aggregates take the least and the greatest value.
    return (
        _departed(inputs)
        .sort("tailnum", "departed_at", "origin")
        .with_columns(session=session)
        .group_by("tailnum", "session")
        .agg(
            window_start=at.min(),
            window_end=at.max() + gap,
            flights=pl.len().cast(pl.Int64),
            first_origin=pl.col("origin").filter(at == at.min()).min(),
            last_destination=pl.col("destination").filter(at == at.max()).max(),
            miles=pl.col("distance").cast(pl.Int64).sum(),
        )
        .drop("session")
    )


EXPECTED = {
    "departures": Expected(("scheduled_at", "carrier", "flight", "origin", "destination"), _departed),
    "delay_by_carrier": Expected(("carrier",), _delays("carrier")),
    "delay_by_route": Expected(("origin", "destination", "carrier"), _delays("origin", "destination", "carrier")),
    "busiest_aircraft": Expected(("tailnum",), _aircraft),
    "late_carriers": Expected(("carrier",), _late),
    "slow_routes": Expected(("carrier", "origin", "destination"), _slow_routes),
    "departures_with_weather": Expected(("departed_at", "carrier", "flight", "origin", "destination"), _with_weather),
    "delays_by_hour": Expected(("origin", "window_start"), _by_hour),
    "aircraft_rotations": Expected(("tailnum", "window_start"), _rotations),
    "worst_routes": Expected(("carrier", "origin", "destination"), _worst_routes),
    "punctuality_by_day": Expected(("day", "origin"), _by_day),
    "top_aircraft": Expected(("tailnum",), _top_aircraft),
}
"""The main job's streams, by name; one that reads another stands behind it."""
