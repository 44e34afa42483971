"""Hashes of rows below a key: of its windows, its distinct values, its rows of one hour.

A state table finds a row by its hash. If all rows below a key had the hash of the key, each look-up would compare keys
with all of them. So each gets a separate hash, with the same shard bits. The hashes are part of the state's format: the
same in every epoch and on every machine.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from dagster_ckpt.lsm.table import Hashes
from dagster_ckpt.lsm.value_hashes import value_hashes

SHARD_BITS = 16
"""The top bits of a hash determine the shard, so they are kept: a stream has at most 2**16 shards."""

_SHARD = np.uint64(((1 << SHARD_BITS) - 1) << (64 - SHARD_BITS))


def subkey_hashes(hashes: Hashes, columns: Sequence[pa.Array | pa.ChunkedArray]) -> Hashes:
    """The hashes of n rows below n keys with these hashes: rows equal in the columns get equal hashes.

    For the types of the columns see `value_hashes`. In floats -0.0 equals 0.0, and all NaN are equal.
    """
    return (hashes & _SHARD) | (value_hashes(columns, hashes) >> np.uint64(SHARD_BITS))
