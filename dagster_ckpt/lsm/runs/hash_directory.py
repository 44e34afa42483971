"""The position of a hash in a sorted array: one read of a small table, then a few steps forward."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dagster_ckpt.lsm.columns import Positions
from dagster_ckpt.lsm.table import Hashes

_HASHES_PER_CELL = 2


@dataclass(frozen=True)
class Directory:
    """The first position of each cell of hashes, where a hash h is in cell `(h - least) >> shift`.

    `first` has one int32 per cell, and one cell for about every two hashes.
    """

    least: int
    shift: int
    first: npt.NDArray[np.int32]

    def cells(self, hashes: Hashes) -> Positions:
        """The cells of hashes, all between the least and greatest."""
        return cells_of(hashes, self.least, self.shift)


def directory_of(hashes: Hashes) -> Directory:
    """The directory of ascending hashes."""
    if len(hashes) == 0:
        return Directory(0, 0, np.zeros(1, dtype=np.int32))
    least = int(hashes[0])
    shift = shift_of(least, int(hashes[-1]), len(hashes) // _HASHES_PER_CELL)
    sizes = np.bincount(cells_of(hashes, least, shift))
    first = np.zeros(len(sizes), dtype=np.int32)
    np.cumsum(sizes[:-1], out=first[1:], dtype=np.int32)
    return Directory(least, shift, first)


def shift_of(least: int, greatest: int, cells: int) -> int:
    """How far hashes are shifted right for about `cells` cells: more than half and less than twice as many."""
    return max(0, (greatest - least).bit_length() - max(1, cells).bit_length())


def cells_of(hashes: Hashes, least: int, shift: int) -> Positions:
    """The cell of each hash, none below the least."""
    # Unsigned to the end: uint64 with a signed number would become float64 and lose the low bits.
    return ((hashes - np.uint64(least)) >> np.uint64(shift)).view(np.int64)
