"""What an epoch changed in a table and has not written yet."""

from collections.abc import Callable, Sequence

from dagster_ckpt.lsm.runs.deltas import Delta, merge_deltas

_UNMERGED_MAX = 8
"""How many may stay unmerged, and be searched one after another."""


class Memtable:
    """Deltas, newest first. Where there are many, the newest are merged, so that there are ever fewer of greater size.

    Deltas are merged late: an epoch that takes in its rows in one batch never copies them.
    """

    def __init__(self, keys: Sequence[str], settled: Callable[[Delta], Delta]) -> None:
        """`settled` completes a delta before it is merged with others: see `merge_deltas`."""
        self._keys = keys
        self._settled = settled
        self._deltas: list[Delta] = []

    def __bool__(self) -> bool:
        return bool(self._deltas)

    @property
    def deltas(self) -> Sequence[Delta]:
        """All deltas, newest first."""
        return self._deltas

    @property
    def nbytes(self) -> int:
        """About how much the deltas hold."""
        return sum(delta.nbytes for delta in self._deltas)

    def stage(self, delta: Delta) -> None:
        """Put a delta above all others; an empty one is dropped."""
        if len(delta):
            self._deltas.insert(0, delta)
            if len(self._deltas) > _UNMERGED_MAX:
                self._merge(self._alike())

    def one(self) -> Delta | None:
        """All deltas merged into one; None: there are none."""
        self._merge(len(self._deltas))
        return self._deltas[0] if self._deltas else None

    def replace(self, change: Callable[[Delta], Delta]) -> None:
        """Replace each delta."""
        self._deltas = [delta for delta in map(change, self._deltas) if len(delta)]

    def clear(self) -> None:
        """Drop all deltas, which are written now."""
        self._deltas.clear()

    def _alike(self) -> int:
        """How many of the newest to merge: as far down as the next is no greater than all before it."""
        count, rows = 1, len(self._deltas[0])
        while count < len(self._deltas) and len(self._deltas[count]) <= rows:
            rows += len(self._deltas[count])
            count += 1
        return count

    def _merge(self, count: int) -> None:
        if count > 1:
            self._deltas[:count] = [merge_deltas([self._settled(delta) for delta in self._deltas[:count]], self._keys)]
