"""State tables as operators see them: verbs over arrays of keys, and what the epoch touched."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Hashes = npt.NDArray[np.uint64]
"""The 64-bit key hashes of rows, as Spark's `xxhash64(keys)` gives them (read as unsigned), one per row."""


@dataclass(frozen=True)
class Found:
    """The result of a multi-get over n keys.

    `present[i]` is whether key i has a row; `rows` holds only the rows that exist, in order of i.
    """

    present: npt.NDArray[np.bool_]
    rows: pa.Table


@dataclass(frozen=True)
class FoundAll:
    """The result of a multi-map over n keys: any number of rows for each.

    Row j of `rows` was found for key `asked[j]`; `asked` ascends.
    """

    asked: npt.NDArray[np.int64]
    rows: pa.Table


@dataclass(frozen=True)
class Touched:
    """n distinct keys that an epoch has written: their rows before the epoch and now, in the same order."""

    hashes: Hashes
    before: Found
    after: Found


KEY_HASH = "_hash"
"""A timeline's column for the hash that each row was put under, as a signed number."""


class StateTable(Protocol):
    """One keyed state table of a task's shards within one epoch.

    The last write of a key wins. Nothing is visible elsewhere before the commit. Rows may belong to any of the task's
    shards and come in any order.

    The change log and the row count need what a key had before it is written. A caller that has just looked up exactly
    these keys passes the answer as `before`: what the table holds for them now, in the order of `hashes`. Without it,
    the table looks them up later.
    """

    def get(self, hashes: Hashes, keys: pa.Table) -> Found:
        """Look up n distinct keys. `keys` has the key columns; true keys are compared, and null equals null."""
        ...

    def get_all(self, hashes: Hashes, keys: pa.Table) -> FoundAll:
        """Look up all rows under n distinct key prefixes: `keys` has the first of the key columns.

        For tables whose rows were put under the hash of those columns alone: the many rows of one join key.
        """
        ...

    def put(self, hashes: Hashes, rows: pa.Table, before: Found | None = None) -> None:
        """Insert or replace the rows of n distinct keys. `rows` has the table's schema; `before`: see above."""
        ...

    def delete(self, hashes: Hashes, keys: pa.Table, before: Found | None = None) -> None:
        """Remove the rows of n distinct keys; a key without a row is no error. `before`: see above."""
        ...

    def expire(self, until_us: int) -> None:
        """Drop every row whose time is before `until_us`; a row without a time stays.

        For tables with a time column and without a change log: rows that expire are not `touched`.
        """
        ...

    def touched_keys(self) -> Iterator[Touched]:
        """Every key put or deleted in this epoch, flushed or not, in pieces by ascending hash.

        One piece if nothing was flushed in between. All keys of one hash are in one piece. Do not change the
        table until the last piece was taken.
        """
        ...


class Timeline(Protocol):
    """One state table of a task's shards, sorted by time (`SortKind.TIME`), within one epoch.

    Its time column is one of its keys and never null. `hashes` only select a row's shard: an operator that needs them
    with the rows of a scan makes them a column. It must do so, as `KEY_HASH`, if rows outlive the epoch: a reshard has
    to find each row's shard.
    """

    def put(self, hashes: Hashes, rows: pa.Table) -> None:
        """Insert or replace the rows of n distinct keys. `rows` has the table's schema."""
        ...

    def delete(self, hashes: Hashes, keys: pa.Table) -> None:
        """Remove the rows of n distinct keys; a key without a row is no error."""
        ...

    def scan(self, from_us: int | None, until_us: int | None) -> Iterator[pa.Table]:
        """The rows whose time is in `[from_us, until_us)` (None: no bound), in pieces; by time within each shard.

        Do not put or delete anything until the last piece was taken.
        """
        ...

    def expire(self, until_us: int) -> None:
        """Drop every row whose time is before `until_us`."""
        ...


class State(Protocol):
    """The state tables of a task's shards within one epoch."""

    def table(self, name: str) -> StateTable:
        """The keyed state table of that name, which the operator must have declared."""
        ...

    def timeline(self, name: str) -> Timeline:
        """The timeline of that name, which the operator must have declared."""
        ...
