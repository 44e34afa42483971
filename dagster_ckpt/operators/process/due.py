"""What is due of a timeline, also where what is done for it is written to that same timeline."""

from collections.abc import Iterator

import pyarrow as pa

from dagster_ckpt.lsm.columns import flatten
from dagster_ckpt.lsm.table import Hashes, Timeline
from dagster_ckpt.operators.own_columns import hashes_in
from dagster_ckpt.protocol.manifest import StateTableSpec


class DueTimeline:
    """A timeline whose scan nothing disturbs: what is put and deleted waits until the scan is over.

    About `bytes_max` may wait: then the scan is broken off, what waits is written, and another one takes what is left.
    """

    def __init__(self, timeline: Timeline, spec: StateTableSpec, bytes_max: int) -> None:
        self.spec = spec
        self._timeline = timeline
        self._bytes_max = bytes_max
        self._waiting: list[tuple[bool, Hashes, pa.Table]] = []
        self._bytes = 0

    def put(self, hashes: Hashes, entries: pa.Table) -> None:
        """Add n distinct entries, with the next `write`."""
        self._wait(True, hashes, entries)

    def delete(self, hashes: Hashes, entries: pa.Table) -> None:
        """Remove n distinct entries, with the next `write`; one that is not there is no error."""
        self._wait(False, hashes, entries)

    def write(self) -> None:
        """Put and delete what waits, in the order in which it was said."""
        for is_put, hashes, entries in self._waiting:
            if is_put:
                self._timeline.put(hashes, entries)
            else:
                self._timeline.delete(hashes, entries.select(list(self.spec.keys)))
        self._waiting.clear()
        self._bytes = 0

    def due(self, until_us: int) -> Iterator[pa.Table]:
        """All entries before `until_us` in pieces, ascending by time within each, each entry once; then they are gone.

        Entries that are put meanwhile and are due as well come in further pieces.
        """
        self.write()
        while True:
            worked: list[pa.Table] = []
            for piece in self._timeline.scan(None, until_us):
                if piece.num_rows:
                    worked.append(flatten(piece))
                    yield worked[-1]
                if self._bytes + sum(each.nbytes for each in worked) > self._bytes_max:
                    break
            if not worked:
                return
            for piece in worked:
                self._timeline.delete(hashes_in(piece), piece.select(list(self.spec.keys)))
            self.write()

    def _wait(self, is_put: bool, hashes: Hashes, entries: pa.Table) -> None:  # noqa: FBT001  (private)
        if entries.num_rows:
            self._waiting.append((is_put, hashes, entries))
            self._bytes += entries.nbytes
