"""A table that fills and then changes, of which any moment can be had in full."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Numbers = npt.NDArray[np.int64]
Change = tuple[pa.Table, str]
"""Rows, and what happens to all of them: `c`, `u` or `d`. A deleted row is as it was before."""
_DELETED = 0.3
"""Of the changes of rows that are there; the others give a row other values."""


class ChangingTable:
    """A table, and for each of its keys the row whose values it has now: -1 where it is not there."""

    def __init__(self, rows: pa.Table, key: Sequence[str]) -> None:
        self.rows, self._key = rows, key
        self._values = np.full(len(rows), -1)

    def insert(self, file: int, files: int) -> list[Change]:
        """The rows of one file of so many."""
        first, end = (len(self.rows) * number // files for number in (file, file + 1))
        self._values[first:end] = np.arange(first, end)
        return [(self.rows.slice(first, end - first), "c")]

    def change(self, share: float, chance: np.random.Generator) -> list[Change]:
        """What happens to such a share of the keys: a row goes, gets the values of another one, or comes back."""
        keys = np.unique(chance.integers(0, len(self.rows), round(share * len(self.rows))))
        there = self._values[keys] >= 0
        goes = there & (chance.random(len(keys)) < _DELETED)
        gone = self._of(keys[goes])
        self._values[keys] = np.where(goes, -1, chance.integers(0, len(self.rows), len(keys)))
        return [(gone, "d"), (self._of(keys[there & ~goes]), "u"), (self._of(keys[~there]), "c")]

    def now(self) -> pa.Table:
        """The rows that are there."""
        return self._of(np.flatnonzero(self._values >= 0))

    def _of(self, keys: Numbers) -> pa.Table:
        found = self.rows.take(pa.array(self._values[keys]))
        for name in self._key:
            found = found.set_column(found.column_names.index(name), name, self.rows[name].take(pa.array(keys)))
        return found
