"""What brings a stream back: it brings a job for each stream along, and is on as soon as it is loaded."""

from assets import STREAMS
from dagster_ckpt import build_recovery_sensor

recovery = build_recovery_sensor(STREAMS)
