"""Hashes of rows below a key: of its windows, its distinct values, its rows of one hour.

A state table finds a row by its hash. If all rows below a key had the key's own, each look-up would compare true keys
with all of them. So they get hashes of their own, which keep what the shard is told by. They are the same in every
epoch and on every machine, for they are part of the state's format.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from dagster_ckpt.lsm.table import Hashes
from dagster_ckpt.lsm.value_hashes import value_hashes

SHARD_BITS = 16
"""A shard is told by its hash's top bits. So many stay: a stream has at most 2**16 shards."""

_SHARD = np.uint64(((1 << SHARD_BITS) - 1) << (64 - SHARD_BITS))


def subkey_hashes(hashes: Hashes, columns: Sequence[pa.Array | pa.ChunkedArray]) -> Hashes:
    """The hashes of n rows below n keys with these hashes, told apart by the columns: equal rows get equal ones.

    Columns of every type that a key may have, and floats: -0.0 is 0.0, and every NaN is one.
    """
    return (hashes & _SHARD) | (value_hashes(columns, hashes) >> np.uint64(SHARD_BITS))
