"""The streaming assets of the main job, a file each; `flights` is the input they share."""

from assets.busiest_aircraft import busiest_aircraft
from assets.delay_by_carrier import delay_by_carrier
from assets.delay_by_route import delay_by_route
from assets.departures import departures

STREAMS = [departures, delay_by_carrier, delay_by_route, busiest_aircraft]

__all__ = ["STREAMS", "busiest_aircraft", "delay_by_carrier", "delay_by_route", "departures"]
