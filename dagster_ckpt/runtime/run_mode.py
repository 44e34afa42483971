"""How long a stream's run goes on: the one word of it that the Dagster surface and the Spark driver share."""

from enum import StrEnum


class Mode(StrEnum):
    """`AVAILABLE_NOW`: work through what is there, then end. `CONTINUOUS`: an epoch every interval until told."""

    AVAILABLE_NOW = "available_now"
    CONTINUOUS = "continuous"
