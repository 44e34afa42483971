"""The page of `carrier_report`: one HTML file that needs no other, drawn by matplotlib."""

from io import StringIO
from pathlib import Path
from typing import Any

import matplotlib as mpl
import polars as pl
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from matplotlib.figure import Figure

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

_LATE, _IN_TIME, _TEXT = "#d9480f", "#4f43dd", "#343a40"

_STYLE: dict[Any, Any] = {
    "font.size": 11,
    "font.family": "sans-serif",
    "svg.fonttype": "none",  # text stays text: the browser's own letters, and they can be searched for
    "svg.hashsalt": "carrier_report",  # the same figures make the same page
    "text.color": _TEXT,
    "axes.labelcolor": _TEXT,
    "xtick.color": _TEXT,
    "ytick.color": _TEXT,
}

_TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined, trim_blocks=True
)


def page(delays: pl.DataFrame, late: pl.DataFrame) -> str:
    """The page about the tables of `delay_by_carrier` and `late_carriers`."""
    carriers = delays.with_columns(
        name=pl.col("carrier").replace(NAMES),
        late=pl.col("carrier").is_in(late["carrier"].implode()),
    ).sort("mean_delay", "carrier", descending=[True, False])
    return _TEMPLATES.get_template("report_page.html.j2").render(
        picture=_picture(carriers),
        carriers=carriers.to_dicts(),
        flights=carriers["flights"].sum(),
        late_flights=carriers.filter("late")["flights"].sum(),
        late_count=late.height,
    )


def _picture(carriers: pl.DataFrame) -> str:
    """A bar for each carrier, the latest on top, as SVG."""
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(9, 0.9 + 0.32 * carriers.height), layout="constrained")
        axes = figure.subplots()
        colours = [_LATE if late else _IN_TIME for late in carriers["late"]]
        bars = axes.barh(carriers["name"].to_list(), carriers["mean_delay"].to_list(), color=colours, height=0.68)
        axes.bar_label(bars, fmt="%.1f", padding=4)
        axes.axvline(15, color=_TEXT, linewidth=1, linestyle=(0, (4, 3)))
        axes.set_xlabel("minutes late, mean of all flights")
        axes.invert_yaxis()
        axes.margins(x=0.08, y=0.02)
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.tick_params(axis="y", length=0)
        svg = StringIO()
        figure.savefig(svg, format="svg", transparent=True, metadata={"Date": None})
    return svg.getvalue().partition("<svg")[1] + svg.getvalue().partition("<svg")[2]
