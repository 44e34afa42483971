"""A side of a race: one way to do the same work on the same rows."""

from typing import Protocol

import pyarrow as pa

from benchmarks.plan import Name


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


def worked(name: Name, side: Side, files: int) -> list[float]:
    """Seconds of each trigger in which the side took these new files; RuntimeError unless that was one a file."""
    seconds = side.work()
    if len(seconds) != files:
        raise RuntimeError(f"not one trigger a file. side={name}, files={files}, triggers={len(seconds)}")
    return seconds
