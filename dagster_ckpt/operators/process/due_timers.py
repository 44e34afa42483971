"""The due entries of a timeline, while their processing writes to the same timeline."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from dagster_ckpt.lsm.columns import Positions, flatten, take
from dagster_ckpt.lsm.runs.key_order import KeyOrder, key_order
from dagster_ckpt.lsm.table import Hashes, Timeline
from dagster_ckpt.operators.process.process_tables import TIME
from dagster_ckpt.operators.shared.state_columns import hashes_in, micros
from dagster_ckpt.protocol.manifest.manifest import StateTableSpec

_NEVER = np.iinfo(np.int64).max


class DueTimeline:
    """A timeline that buffers writes during a scan.

    The buffer has about `bytes_max`: when it is full, the scan stops, the buffer is written, and a new scan continues.
    Due entries come in pieces of at most about a quarter of that.
    """

    def __init__(self, timeline: Timeline, spec: StateTableSpec, bytes_max: int) -> None:
        self.spec = spec
        self._timeline = timeline
        self._bytes_max = bytes_max
        self._waiting: list[tuple[bool, Hashes, pa.Table]] = []
        self._bytes = 0
        self._earliest_us = _NEVER

    def put(self, hashes: Hashes, entries: pa.Table) -> None:
        """Add n distinct entries, with the next `write`."""
        self._wait(True, hashes, entries)

    def delete(self, hashes: Hashes, entries: pa.Table) -> None:
        """Remove n distinct entries, with the next `write`; an absent one is no error."""
        self._wait(False, hashes, entries)

    def write(self) -> None:
        """Write the buffered puts and deletes, in their order."""
        for is_put, hashes, entries in self._waiting:
            if is_put:
                self._timeline.put(hashes, entries)
            else:
                self._timeline.delete(hashes, entries.select(list(self.spec.keys)))
        self._waiting.clear()
        self._bytes = 0
        self._earliest_us = _NEVER

    def due(self, until_us: int) -> Iterator[pa.Table]:
        """All entries before `until_us` in pieces, ascending by time within each, each entry once; then delete them.

        A piece has at most one entry of a key, its earliest. The next one is read after the piece is processed, so
        entries put or deleted meanwhile take effect in order, as if each entry were processed at its time.
        """
        self.write()
        while True:
            worked: list[pa.Table] = []
            worked_bytes = 0
            for piece in self._in_turn(until_us):
                yield piece
                worked.append(piece)
                worked_bytes += piece.nbytes
                if self._bytes + worked_bytes > self._bytes_max:
                    break
            if not worked:
                return
            for piece in worked:
                self._timeline.delete(hashes_in(piece), piece.select(list(self.spec.keys)))
            self.write()

    def _in_turn(self, until_us: int) -> Iterator[pa.Table]:
        """The entries of one scan, those of each key in turn, until the buffer has an entry that is due.

        The entries of a key are in one shard, so the scan has them in the order of time too.
        """
        names = [name for name in self.spec.keys if name != TIME]
        for scanned in self._timeline.scan(None, until_us):
            if scanned.num_rows == 0:
                continue
            piece = flatten(scanned)
            rows_max = max(1, self._bytes_max // 4 * piece.num_rows // max(1, piece.nbytes))
            for turn in _turns(key_order(hashes_in(piece), piece.select(names))):
                if self._earliest_us < until_us:
                    return
                for start in range(0, len(turn), rows_max):
                    yield take(piece, turn[start : start + rows_max])

    def _wait(self, is_put: bool, hashes: Hashes, entries: pa.Table) -> None:  # noqa: FBT001  (private)
        if entries.num_rows:
            self._waiting.append((is_put, hashes, entries))
            self._bytes += entries.nbytes
            self._earliest_us = min(self._earliest_us, int(micros(entries.column(TIME)).min()))


def _turns(groups: KeyOrder) -> Iterator[Positions]:
    """The first row of each key, then the second of each that has one, and so on; each time ascending."""
    at, ends = groups.starts, groups.starts + groups.sizes
    while len(at):
        yield np.sort(groups.order[at])
        left = at + 1 < ends
        at, ends = at[left] + 1, ends[left]
