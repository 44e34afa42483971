"""A side of a race: one way to do the same work on the same rows."""

from typing import Protocol

import pyarrow as pa


class Side(Protocol):
    """It reads the inbox of the race, one file a trigger, and goes on where it stopped."""

    def work(self) -> list[float]:
        """Take the files that are new. Seconds of each whole trigger, in order."""
        ...

    def results(self) -> pa.Table | None:
        """Take the last file; then what came of it, perhaps beside what there was before.

        None of a side that computes nothing.
        """
        ...
