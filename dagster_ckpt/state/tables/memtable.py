"""What an epoch said of a table and did not write yet."""

from collections.abc import Callable, Sequence

from dagster_ckpt.lsm.runs.deltas import Delta, merge_deltas

_WORDS_MAX = 8
"""So many may lie unmerged, and be asked one after another."""


class Memtable:
    """Deltas, newest first. The newest are made one where they are many, so that there are ever fewer of greater size.

    Deltas are taken as they come, and put together late: an epoch that takes in its rows at once never copies them.
    """

    def __init__(self, keys: Sequence[str], settled: Callable[[Delta], Delta]) -> None:
        """`settled` completes a delta before it is made one with others: see `merge_deltas`."""
        self._keys = keys
        self._settled = settled
        self._deltas: list[Delta] = []

    def __bool__(self) -> bool:
        return bool(self._deltas)

    @property
    def deltas(self) -> Sequence[Delta]:
        """All that was said, newest first."""
        return self._deltas

    @property
    def nbytes(self) -> int:
        """What the deltas hold, more or less."""
        return sum(delta.nbytes for delta in self._deltas)

    def stage(self, delta: Delta) -> None:
        """Put a delta above all others; an empty one says nothing."""
        if len(delta):
            self._deltas.insert(0, delta)
            if len(self._deltas) > _WORDS_MAX:
                self._make_one(self._alike())

    def one(self) -> Delta | None:
        """All that was said as one delta; None: nothing was."""
        self._make_one(len(self._deltas))
        return self._deltas[0] if self._deltas else None

    def replace(self, change: Callable[[Delta], Delta]) -> None:
        """Put another delta in the place of each."""
        self._deltas = [delta for delta in map(change, self._deltas) if len(delta)]

    def clear(self) -> None:
        """Forget everything: it was written."""
        self._deltas.clear()

    def _alike(self) -> int:
        """How many of the newest to make one: as far down as the next is no greater than all before it."""
        count, rows = 1, len(self._deltas[0])
        while count < len(self._deltas) and len(self._deltas[count]) <= rows:
            rows += len(self._deltas[count])
            count += 1
        return count

    def _make_one(self, count: int) -> None:
        if count > 1:
            self._deltas[:count] = [merge_deltas([self._settled(delta) for delta in self._deltas[:count]], self._keys)]
