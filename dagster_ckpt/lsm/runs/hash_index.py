"""Where in a run a hash is, and whether it may be there at all.

A Bloom filter answers the second from two bits instead of a read of the run; `FileLayout` says which files have one. A
directory answers the first by one read of a small table, then a few steps forward.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dagster_ckpt.lsm.columns import Positions
from dagster_ckpt.lsm.table import Hashes

_HASHES_PER_WORD = 5
_MIX = np.uint64(0x9E3779B97F4A7C15)
"""The golden ratio: spreads values that differ only in low bits (as times do) over the high ones."""

Words = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class Bloom:
    """One word of 64 bits for about every five hashes; h is in word `(h - least) >> shift`.

    Neighbours share a word, so ascending hashes read the words in order. The two bits of h in its word are numbered by
    the highest 6 bits of `h * 0x9E3779B97F4A7C15`, and by the next 6.
    """

    least: int
    shift: int
    words: Words

    def cells(self, hashes: Hashes) -> Positions:
        """The words of hashes, all between the least and greatest."""
        return hash_cells(hashes, self.least, self.shift)

    def may_have(self, hashes: Hashes) -> Positions:
        """Which of these hashes, all between the least and greatest, may be present: the others are not."""
        bits = _bits(hashes)
        return np.flatnonzero((np.take(self.words, self.cells(hashes)) & bits) == bits)


def build_bloom(hashes: Hashes) -> Bloom:
    """The filter of ascending hashes, at least one."""
    least, greatest = int(hashes[0]), int(hashes[-1])
    shift = cell_shift(least, greatest, len(hashes) // _HASHES_PER_WORD)
    cells = hash_cells(hashes, least, shift)
    words = np.zeros(int(cells[-1]) + 1, dtype=np.uint64)
    starts = np.flatnonzero(np.diff(cells, prepend=-1))
    words[cells[starts]] = np.bitwise_or.reduceat(_bits(hashes), starts)
    return Bloom(least, shift, words)


def _bits(hashes: Hashes) -> Words:
    mixed = hashes * _MIX
    one = np.uint64(1)
    bits: Words = (one << (mixed >> np.uint64(58))) | (one << ((mixed >> np.uint64(52)) & np.uint64(63)))
    return bits


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
        return hash_cells(hashes, self.least, self.shift)


def build_directory(hashes: Hashes) -> Directory:
    """The directory of ascending hashes."""
    if len(hashes) == 0:
        return Directory(0, 0, np.zeros(1, dtype=np.int32))
    least = int(hashes[0])
    shift = cell_shift(least, int(hashes[-1]), len(hashes) // _HASHES_PER_CELL)
    sizes = np.bincount(hash_cells(hashes, least, shift))
    first = np.zeros(len(sizes), dtype=np.int32)
    np.cumsum(sizes[:-1], out=first[1:], dtype=np.int32)
    return Directory(least, shift, first)


def cell_shift(least: int, greatest: int, cells: int) -> int:
    """How far hashes are shifted right for about `cells` cells: more than half and less than twice as many."""
    return max(0, (greatest - least).bit_length() - max(1, cells).bit_length())


def hash_cells(hashes: Hashes, least: int, shift: int) -> Positions:
    """The cell of each hash, none below the least."""
    # Unsigned to the end: uint64 with a signed number would become float64 and lose the low bits.
    return ((hashes - np.uint64(least)) >> np.uint64(shift)).view(np.int64)
