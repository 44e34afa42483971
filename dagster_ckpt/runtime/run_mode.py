"""When a stream's run ends: shared by the Dagster integration and the Spark driver."""

from enum import StrEnum


class Mode(StrEnum):
    """`AVAILABLE_NOW`: process all available input, then end. `CONTINUOUS`: an epoch every interval until stopped."""

    AVAILABLE_NOW = "available_now"
    CONTINUOUS = "continuous"
