"""The streaming assets of the main job, a file each; `flights` and `weather` are the inputs they share."""

from assets.aircraft_rotations import aircraft_rotations
from assets.busiest_aircraft import busiest_aircraft
from assets.delay_by_carrier import delay_by_carrier
from assets.delay_by_route import delay_by_route
from assets.delays_by_hour import delays_by_hour
from assets.departures import departures
from assets.departures_with_weather import departures_with_weather

CONTINUOUS = [departures, delay_by_carrier, delay_by_route, busiest_aircraft]
"""Each works for as long as it is let, in a Dagster run of its own."""

IN_TIME = [departures_with_weather, delays_by_hour, aircraft_rotations]
"""Each works through what there is and ends; together they fit into one Dagster run."""

STREAMS = [*CONTINUOUS, *IN_TIME]

__all__ = [
    "CONTINUOUS",
    "IN_TIME",
    "STREAMS",
    "aircraft_rotations",
    "busiest_aircraft",
    "delay_by_carrier",
    "delay_by_route",
    "delays_by_hour",
    "departures",
    "departures_with_weather",
]
