"""Bring the rows of each key together, in the order of the key's hash; keys that share a hash are told apart."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dagster_ckpt.lsm.columns import Mask, Positions, flat, rows_equal, take
from dagster_ckpt.lsm.table import Hashes


@dataclass(frozen=True)
class KeyOrder:
    """n rows, the rows of one key side by side.

    `order` lists the row numbers by ascending hash, rows of one key in their own order; `starts` are the positions in
    `order` where a key begins, so `order[starts]` is the first row of each distinct key.
    """

    order: Positions
    starts: Positions

    @property
    def sizes(self) -> Positions:
        """How many rows each distinct key has."""
        return np.diff(self.starts, append=len(self.order))


def key_order(hashes: Hashes, keys: pa.Table) -> KeyOrder:
    """Order n rows by key. Equal hashes are only a hint: the true keys decide, and null equals null."""
    order: Positions = np.lexsort((hashes,))
    ordered = hashes[order]
    repeats = np.flatnonzero(ordered[1:] == ordered[:-1]) + 1  # positions whose hash is that of the position before
    begins = np.ones(len(order), dtype=np.bool_)
    if len(repeats):
        same = rows_equal(take(keys, order[repeats - 1]), take(keys, order[repeats]))
        if same.all():
            begins[repeats] = False
        else:
            order, begins = _tell_apart(order, ordered, ordered[repeats[~same]], keys)
    return KeyOrder(order, np.flatnonzero(begins))


def _tell_apart(order: Positions, ordered: Hashes, shared: Hashes, keys: pa.Table) -> tuple[Positions, Mask]:
    """Where several keys share a hash, their rows may alternate: sort those by true key too, and say where keys begin.

    Rows of one key keep their own order. Only rows with a shared hash are numbered, which is expensive.
    """
    shared = np.unique(shared)
    nearest = np.minimum(np.searchsorted(shared, ordered), len(shared) - 1)
    mixed = np.flatnonzero(shared[nearest] == ordered)
    codes = np.zeros(len(order), dtype=np.int64)
    rows = order[mixed]
    numbers = key_codes(take(keys, rows))
    by_key = np.lexsort((rows, numbers, ordered[mixed]))
    order = order.copy()
    order[mixed] = rows[by_key]
    codes[mixed] = numbers[by_key]
    begins = np.ones(len(order), dtype=np.bool_)
    begins[1:] = (ordered[1:] != ordered[:-1]) | (codes[1:] != codes[:-1])
    return order, begins


def key_codes(keys: pa.Table) -> npt.NDArray[np.int64]:
    """One number per row, equal where and only where the keys are equal."""
    codes = np.zeros(keys.num_rows, dtype=np.int64)
    for column in keys.columns:
        encoded = flat(column).dictionary_encode(null_encoding="encode")
        # Numbered afresh after each column, so that the product of the columns' sizes cannot overflow.
        wide = codes * len(encoded.dictionary) + encoded.indices.to_numpy()
        codes = np.unique(wide, return_inverse=True)[1]
    return codes
