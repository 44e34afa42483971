"""The assets of the main job, a file each: streams in Python and in SQL, and a report on two of them.

`flights` and `weather` are the inputs that the streams share.
"""

from pathlib import Path

from assets.aircraft_rotations import aircraft_rotations
from assets.busiest_aircraft import busiest_aircraft
from assets.carrier_report import carrier_report
from assets.delay_by_carrier import delay_by_carrier
from assets.delay_by_route import delay_by_route
from assets.delays_by_hour import delays_by_hour
from assets.departures import departures
from assets.departures_with_weather import departures_with_weather
from assets.late_carriers import late_carriers
from assets.worst_routes import worst_routes
from dagster_ckpt import streaming_sql

CONTINUOUS = [departures, delay_by_carrier, delay_by_route, busiest_aircraft, late_carriers]
"""Each works for as long as it is let, in a Dagster run of its own."""

IN_TIME = [departures_with_weather, delays_by_hour, aircraft_rotations, worst_routes]
"""Each works through what there is and ends; together they fit into one Dagster run."""

IN_SQL = streaming_sql(Path(__file__).with_name("sql"), assets=[*CONTINUOUS, *IN_TIME])
"""Of both kinds: the properties of each table say which."""

STREAMS = [*CONTINUOUS, *IN_TIME, *IN_SQL]

REPORTS = [carrier_report]
"""Ordinary assets, which read the streams' tables."""

__all__ = [
    "CONTINUOUS",
    "IN_SQL",
    "IN_TIME",
    "REPORTS",
    "STREAMS",
    "aircraft_rotations",
    "busiest_aircraft",
    "carrier_report",
    "delay_by_carrier",
    "delay_by_route",
    "delays_by_hour",
    "departures",
    "departures_with_weather",
    "late_carriers",
    "worst_routes",
]
