"""Where in a sorted array of hashes a hash lies: one look at a small table, then a few steps forward."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dagster_ckpt.lsm.columns import Positions
from dagster_ckpt.lsm.table import Hashes

_HASHES_PER_CELL = 4


@dataclass(frozen=True)
class Directory:
    """The first position of each cell of hashes, where a hash h lies in cell `(h - least) >> shift`.

    `first` has one int32 per cell, and one cell for about every four hashes.
    """

    least: int
    shift: int
    first: npt.NDArray[np.int32]


def directory_of(hashes: Hashes) -> Directory:
    """The directory of ascending hashes."""
    if len(hashes) == 0:
        return Directory(0, 0, np.zeros(1, dtype=np.int32))
    least = int(hashes[0])
    shift = shift_of(least, int(hashes[-1]), len(hashes))
    sizes = np.bincount(_cells(hashes, least, shift))
    first = np.zeros(len(sizes), dtype=np.int32)
    np.cumsum(sizes[:-1], out=first[1:], dtype=np.int32)
    return Directory(least, shift, first)


def shift_of(least: int, greatest: int, rows: int) -> int:
    """How far hashes are shifted right so that there is about one cell for every four of them."""
    cells = max(1, rows // _HASHES_PER_CELL)
    return max(0, (greatest - least).bit_length() - cells.bit_length())


def first_not_less(directory: Directory, hashes: Hashes, wanted: Hashes) -> Positions:
    """For each wanted hash, none beyond the least and greatest, the first position in `hashes` that is not less."""
    at = np.take(directory.first, _cells(wanted, directory.least, directory.shift)).astype(np.int64)
    behind = np.flatnonzero(np.take(hashes, at) < wanted)
    while len(behind):
        # Ever fewer take another step; none runs off the end, since the greatest hash is not less than any wanted one.
        at[behind] += 1
        behind = behind[np.take(hashes, at[behind]) < wanted[behind]]
    return at


def _cells(hashes: Hashes, least: int, shift: int) -> Positions:
    # Kept unsigned to the end: uint64 with a signed number would become float64 and lose the low bits.
    return ((hashes - np.uint64(least)) >> np.uint64(shift)).astype(np.int64)
