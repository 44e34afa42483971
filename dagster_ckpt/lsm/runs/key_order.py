"""Groups the rows of each key, in the order of the key's hash; distinguishes keys that share a hash."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dagster_ckpt.lsm.columns import Mask, Positions, flat, row_codes, row_numbers, rows_equal, stretches, take
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
    """Order n rows by key. Equal hashes are only a hint: the keys themselves decide, and null equals null."""
    order = hash_order(hashes)
    ordered = np.take(hashes, order)
    repeats = np.flatnonzero(ordered[1:] == ordered[:-1]) + 1  # positions whose hash is that of the position before
    begins = np.ones(len(order), dtype=np.bool_)
    if len(repeats):
        same = rows_equal(take(keys, np.take(order, repeats - 1)), take(keys, np.take(order, repeats)))
        if same.all():
            begins[repeats] = False
        else:
            order, begins = _split_collisions(order, ordered, ordered[repeats[~same]], keys)
    return KeyOrder(order, np.flatnonzero(begins))


def hash_order(hashes: Hashes) -> Positions:
    """The row numbers by ascending hash, rows of one hash in their own order.

    Measured on 95,000 rows: sorting whole hashes takes 6 ms in random order and 1.5 ms if they are twelve ascending
    runs; two passes over 16 bits each, which numpy sorts by counting, take 1.8 ms in any order. Rows that the lower
    bits leave in disorder are rare, and sorted afterwards.
    """
    rows = len(hashes)
    if np.count_nonzero(hashes[1:] < hashes[:-1]) <= rows // 16:
        return np.argsort(hashes, kind="stable")
    least = hashes.min()
    lost_bits = max(0, int(hashes.max() - least).bit_length() - 32)
    high = ((hashes - least) >> np.uint64(lost_bits)).astype(np.uint32)
    order = np.argsort(high.astype(np.uint16), kind="stable")
    higher = (high >> np.uint32(16)).astype(np.uint16)
    order = np.take(order, np.argsort(np.take(higher, order), kind="stable"))
    return order if lost_bits == 0 else _put_right(order, np.take(high, order), np.take(hashes, order))


def _put_right(order: Positions, high: npt.NDArray[np.uint32], ordered: Hashes) -> Positions:
    """Sort by whole hashes what was sorted by their high bits."""
    disorder = np.flatnonzero(ordered[1:] < ordered[:-1])
    if len(disorder) == 0:
        return order
    if len(disorder) > len(order) // 64:
        return np.take(order, np.lexsort((order, ordered)))
    # The rows whose high bits are equal and whose low bits descend somewhere; all others are in order.
    disordered = np.unique(high[disorder])
    starts, ends = np.searchsorted(high, disordered, side="left"), np.searchsorted(high, disordered, side="right")
    places = stretches(starts, ends)
    rows = order[places]
    order[places] = rows[np.lexsort((rows, ordered[places]))]
    return order


def _split_collisions(order: Positions, ordered: Hashes, shared: Hashes, keys: pa.Table) -> tuple[Positions, Mask]:
    """Sort rows whose keys share a hash by key too, since they may alternate; also returns which rows begin a key.

    `shared` has all such hashes, ascending, with repeats. Rows of one key keep their order. Only rows with a shared
    hash are numbered, which is expensive.
    """
    shared = shared[np.append(True, shared[1:] != shared[:-1])]
    nearest = np.minimum(np.searchsorted(shared, ordered), len(shared) - 1)
    mixed = np.flatnonzero(shared[nearest] == ordered)
    rows = order[mixed]
    theirs = take(keys, rows)
    by_key, numbers = _by_hash_and_key(ordered[mixed], theirs)
    order = order.copy()
    order[mixed] = rows[by_key]
    codes = np.zeros(len(order), dtype=np.uint64)
    codes[mixed] = numbers[by_key]
    begins = np.ones(len(order), dtype=np.bool_)
    begins[1:] = (ordered[1:] != ordered[:-1]) | (codes[1:] != codes[:-1])
    return order, begins


def _by_hash_and_key(hashes: Hashes, keys: pa.Table) -> tuple[Positions, Hashes]:
    """The order of rows by hash and then by number; within a hash, keys have equal numbers if and only if equal."""
    columns = [flat(column) for column in keys.columns]
    numbers = row_numbers(columns)
    order = _by_both(hashes, numbers)
    alike = _alike(hashes, numbers, order)
    if not rows_equal(take(keys, order[alike - 1]), take(keys, order[alike])).all():
        # Row numbers are cheap, and collide about as often as hashes do.
        numbers = row_codes(columns).view(np.uint64)
        order = _by_both(hashes, numbers)
    return order, numbers


def _by_both(hashes: Hashes, numbers: Hashes) -> Positions:
    by_number = hash_order(numbers)
    return np.take(by_number, hash_order(np.take(hashes, by_number)))


def _alike(hashes: Hashes, numbers: Hashes, order: Positions) -> Positions:
    """The positions in the order whose hash and number are those of the position before."""
    hashes, numbers = np.take(hashes, order), np.take(numbers, order)
    return np.flatnonzero((hashes[1:] == hashes[:-1]) & (numbers[1:] == numbers[:-1])) + 1


def key_codes(keys: pa.Table) -> Positions:
    """One number per row, equal if and only if the keys are."""
    return row_codes([flat(column) for column in keys.columns])
