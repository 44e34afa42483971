"""The sensors."""

from sensors.recovery import recovery

SENSORS = [recovery]

__all__ = ["SENSORS"]
