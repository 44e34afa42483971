"""A state table as operators see it: multi-get, put and delete over arrays of keys, and what the epoch touched."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Hashes = npt.NDArray[np.uint64]
"""The 64-bit key hashes of rows, as Spark's `xxhash64(keys)` gives them (read as unsigned), one per row."""


@dataclass(frozen=True)
class Found:
    """The answer of a multi-get over n keys.

    `present[i]` says whether key i has a row; `rows` holds only the rows there are, in order of i.
    """

    present: npt.NDArray[np.bool_]
    rows: pa.Table


@dataclass(frozen=True)
class Touched:
    """The n distinct keys an epoch wrote so far: their rows before the epoch and now, in one order of keys."""

    hashes: Hashes
    before: Found
    after: Found


class StateTable(Protocol):
    """One keyed state table of one shard within one epoch.

    Later words win; nothing is visible elsewhere before the commit.
    """

    def get(self, hashes: Hashes, keys: pa.Table) -> Found:
        """Look up n distinct keys. `keys` has the key columns; true keys are always compared, and null equals null."""
        ...

    def put(self, hashes: Hashes, rows: pa.Table) -> None:
        """Insert or replace the rows of n distinct keys. `rows` has the table's schema."""
        ...

    def delete(self, hashes: Hashes, keys: pa.Table) -> None:
        """Remove the rows of n distinct keys; a key without a row is no error."""
        ...

    def touched(self) -> Touched:
        """Every key put or deleted in this epoch, also where it was flushed already."""
        ...


class State(Protocol):
    """The state tables of one shard within one epoch."""

    def table(self, name: str) -> StateTable:
        """The state table of that name; it must be one the operator declared."""
        ...
