"""A Bloom filter of hashes: whether a run may have a hash, from two bits instead of a read of the run.

Which files have one: see `FileLayout`.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dagster_ckpt.lsm.columns import Positions
from dagster_ckpt.lsm.runs.hash_directory import cells_of, shift_of
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
        return cells_of(hashes, self.least, self.shift)

    def may_have(self, hashes: Hashes) -> Positions:
        """Which of these hashes, all between the least and greatest, may be present: the others are not."""
        bits = _bits(hashes)
        return np.flatnonzero((np.take(self.words, self.cells(hashes)) & bits) == bits)


def bloom_of(hashes: Hashes) -> Bloom:
    """The filter of ascending hashes, at least one."""
    least, greatest = int(hashes[0]), int(hashes[-1])
    shift = shift_of(least, greatest, len(hashes) // _HASHES_PER_WORD)
    cells = cells_of(hashes, least, shift)
    words = np.zeros(int(cells[-1]) + 1, dtype=np.uint64)
    starts = np.flatnonzero(np.diff(cells, prepend=-1))
    words[cells[starts]] = np.bitwise_or.reduceat(_bits(hashes), starts)
    return Bloom(least, shift, words)


def _bits(hashes: Hashes) -> Words:
    mixed = hashes * _MIX
    one = np.uint64(1)
    bits: Words = (one << (mixed >> np.uint64(58))) | (one << ((mixed >> np.uint64(52)) & np.uint64(63)))
    return bits
