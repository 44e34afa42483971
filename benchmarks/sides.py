"""A side of a race: one way to keep a running count, sum and maximum per key."""

from typing import Protocol

import pyarrow as pa


class Side(Protocol):
    """It reads the inbox of the race, one file a trigger, and goes on where it stopped."""

    def work(self) -> list[float]:
        """Take the files that are new. Seconds of each whole trigger, in order."""
        ...

    def results(self) -> pa.Table | None:
        """Take the last file; then the results (`inputs.COLUMNS`) of its keys, perhaps of others too.

        None of a side that computes nothing.
        """
        ...
