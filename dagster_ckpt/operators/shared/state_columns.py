"""Columns that operators add to the user's in their state tables: part of the state's format."""

import numpy as np
import pyarrow as pa

from dagster_ckpt.lsm.columns import Positions, flat
from dagster_ckpt.lsm.table import KEY_HASH, Hashes
from dagster_ckpt.protocol.manifest import row_key

HASH = KEY_HASH
"""The hash of a row's key, as a signed number: needed to look up the keys of scanned rows."""
GROUP = row_key.GROUP
"""The key of a step without keys."""
ROWS = "_rows"
"""How many rows a group has, or how often a row is there."""
ROW = "_row"
"""Distinguishes rows that are equal in every column (`EpochContext.row_numbers`)."""


def whole_number(name: str) -> pa.Field:
    """A column of whole numbers without nulls."""
    return pa.field(name, pa.int64(), nullable=False)


def hash_column(hashes: Hashes) -> pa.Array:
    """The column `HASH` of rows whose keys have these hashes."""
    return pa.array(hashes.view(np.int64))


def hashes_in(rows: pa.Table) -> Hashes:
    """The key hashes of rows with the column `HASH`."""
    hashes: Hashes = flat(rows.column(HASH)).to_numpy().view(np.uint64)
    return hashes


def micros(column: pa.Array | pa.ChunkedArray) -> Positions:
    """The times of a column without nulls in microseconds since the Unix epoch."""
    times: Positions = flat(column).view(pa.int64()).to_numpy()
    return times
