"""The page of `carrier_report`: one HTML file that needs no other, for wide and narrow screens, in light and dark."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import polars as pl
from jinja2 import Environment, FileSystemLoader, StrictUndefined

NAMES = {
    "9E": "Endeavor Air",
    "AA": "American Airlines",
    "AS": "Alaska Airlines",
    "B6": "JetBlue Airways",
    "DL": "Delta Air Lines",
    "EV": "ExpressJet Airlines",
    "F9": "Frontier Airlines",
    "FL": "AirTran Airways",
    "HA": "Hawaiian Airlines",
    "MQ": "Envoy Air",
    "OO": "SkyWest Airlines",
    "UA": "United Air Lines",
    "US": "US Airways",
    "VX": "Virgin America",
    "WN": "Southwest Airlines",
    "YV": "Mesa Airlines",
}
"""What the codes stand for; another code stands for itself."""

LATE_MINUTES = 15.0

_NEW_YORK = ZoneInfo("America/New_York")

_TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined, trim_blocks=True
)


@dataclass(frozen=True, slots=True)
class ShownEpoch:
    """The epoch of a stream that the page shows.

    `departures_until` is the newest departure in it; `made_from` names the upstream and its epoch instead, for a stream
    that reads another. Times are aware.
    """

    stream: str
    epoch: int
    committed_at: datetime
    departures_until: datetime | None = None
    made_from: str | None = None

    def texts(self) -> dict[str, object]:
        """As the page shows it: commits in UTC, departures on New York's clocks."""
        until = self.departures_until
        return {
            "stream": self.stream,
            "epoch": self.epoch,
            "committed_at": f"{self.committed_at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC",
            "departures_until": f"{until.astimezone(_NEW_YORK):%Y-%m-%d %H:%M}, New York" if until else "none yet",
            "made_from": self.made_from,
        }


def page(delays: pl.DataFrame, late: pl.DataFrame, cut: Sequence[ShownEpoch]) -> str:
    """The page about the tables of `delay_by_carrier` and `late_carriers` at the epochs of `cut`."""
    carriers = delays.with_columns(
        name=pl.col("carrier").replace(NAMES),
        late=pl.col("carrier").is_in(late["carrier"].implode()),
    ).sort("mean_delay", "carrier", descending=[True, False])
    means = carriers["mean_delay"].to_list()
    low, high = min([0.0, *means]), max([LATE_MINUTES, *means])
    percent = 100 / (high - low)
    bars = carriers.with_columns(
        bar_left=((pl.min_horizontal("mean_delay", pl.lit(0.0)) - low) * percent).round(2),
        bar_width=(pl.col("mean_delay").abs() * percent).round(2),
    )
    return _TEMPLATES.get_template("report_page.html.j2").render(
        carriers=bars.to_dicts(),
        cut=[each.texts() for each in cut],
        quarter=round((LATE_MINUTES - low) * percent, 2),
        flights=carriers["flights"].sum(),
        late_flights=carriers.filter("late")["flights"].sum(),
        late_count=late.height,
    )
