"""A run: rows sorted by the hash of their key, each key once, some of them tombstones. It never changes."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from dagster_ckpt.lsm.columns import Mask, Positions, flatten, rows_equal, stack, take
from dagster_ckpt.lsm.directory import Directory, directory_of, first_not_less
from dagster_ckpt.lsm.key_order import key_order
from dagster_ckpt.lsm.table import Hashes

ABSENT = -1
"""The position of a key that is not there."""


def _trusted(_: pa.Array) -> None:
    """Bytes that this process made need no check."""


@dataclass(frozen=True)
class Run:
    """A run in memory, or on a mapped file of which only what is used is read.

    `hash_column` ascends; keys with equal hashes lie side by side in any order. In a tombstone's row everything but the
    key is null. `before_column`, of logged runs alone, is what each key had before the epoch: the value columns, or
    null where it had no row. `touch` is called with an array before its values are first used: it checks them against
    the file's checksums.
    """

    table: pa.Table
    hash_column: pa.Array
    tombstone_column: pa.Array | None
    stored_directory: Directory | None = None
    touch: Callable[[pa.Array], None] = _trusted
    before_column: pa.StructArray | None = None

    def __len__(self) -> int:
        return len(self.hash_column)

    @cached_property
    def hashes(self) -> Hashes:
        """The rows' hashes, ascending."""
        self.touch(self.hash_column)
        hashes: Hashes = self.hash_column.to_numpy()
        return hashes

    @cached_property
    def tombstones(self) -> Mask | None:
        """Which rows are tombstones; None: none is."""
        if self.tombstone_column is None:
            return None
        self.touch(self.tombstone_column)
        tombstones: Mask = self.tombstone_column.to_numpy(zero_copy_only=False)
        return tombstones if tombstones.any() else None

    @cached_property
    def directory(self) -> Directory:
        """The directory of the hashes."""
        return directory_of(self.hashes) if self.stored_directory is None else self.stored_directory

    @cached_property
    def before(self) -> pa.StructArray | None:
        """What each key had before the epoch, see `images`; None: the run is not a logged one."""
        if self.before_column is not None:
            self.touch(self.before_column)
        return self.before_column

    def columns(self, names: Iterable[str] | None = None) -> pa.Table:
        """All rows, or some columns of them."""
        chosen = self.table if names is None else self.table.select(list(names))
        for column in chosen.columns:
            self.touch(column.chunk(0))
        return chosen

    def find(self, hashes: Hashes, keys: pa.Table, rows: Positions) -> Positions:
        """Where each of n keys lies, or `ABSENT`: key i has `hashes[i]` and is row `rows[i]` of `keys`.

        The true keys are compared; null equals null.
        """
        found = np.full(len(hashes), ABSENT, dtype=np.int64)
        if len(self) == 0:
            return found
        mine = self.hashes
        asked = np.flatnonzero((hashes >= mine[0]) & (hashes <= mine[-1]))
        at = first_not_less(self.directory, mine, np.take(hashes, asked))
        candidates = self.columns(keys.column_names)
        while len(asked):
            hit = np.flatnonzero(np.take(mine, at) == np.take(hashes, asked))
            asked, at = np.take(asked, hit), np.take(at, hit)
            same = rows_equal(take(candidates, at), take(keys, np.take(rows, asked)))
            found[asked[same]] = at[same]
            if same.all():
                break
            # Another key with the same hash may lie right behind.
            asked, at = asked[~same], at[~same] + 1
            inside = at < len(mine)
            asked, at = asked[inside], at[inside]
        return found


def run_of(hashes: Hashes, rows: pa.Table, tombstones: Mask | None = None) -> Run:
    """A run in memory of n distinct keys in any order."""
    if len(hashes) > 1 and (hashes[1:] < hashes[:-1]).any():
        order = np.lexsort((hashes,))
        hashes, rows = hashes[order], take(rows, order)
        tombstones = None if tombstones is None else tombstones[order]
    return Run(flatten(rows), pa.array(hashes), None if tombstones is None else pa.array(tombstones))


def tombstones_of(hashes: Hashes, keys: pa.Table, schema: pa.Schema) -> Run:
    """A run in memory that says of n distinct keys that they have no row."""
    n = len(hashes)
    columns = [keys.column(f.name) if f.name in keys.column_names else pa.nulls(n, f.type) for f in schema]
    return run_of(hashes, pa.Table.from_arrays(columns, schema=schema), np.ones(n, dtype=np.bool_))


def merged(runs: list[Run], keys: tuple[str, ...]) -> Run:
    """All keys of the runs, each with its newest word; the runs come newest first. Tombstones stay."""
    if len(runs) == 1:
        return runs[0]
    hashes = np.concatenate([run.hashes for run in runs])
    rows = stack([run.columns() for run in runs])
    groups = key_order(hashes, rows.select(list(keys)))
    newest = groups.order[groups.starts]
    tombstones = None
    if any(run.tombstones is not None for run in runs):
        each = [np.zeros(len(run), dtype=np.bool_) if run.tombstones is None else run.tombstones for run in runs]
        tombstones = np.concatenate(each)[newest]
    return run_of(hashes[newest], take(rows, newest), tombstones)


def kept(run: Run, wanted: Mask) -> Run:
    """The run without some of its rows."""
    if wanted.all():
        return run
    at = np.flatnonzero(wanted)
    tombstones = None if run.tombstones is None else run.tombstones[at]
    return run_of(run.hashes[at], take(run.columns(), at), tombstones)


def live(run: Run) -> Run:
    """The run without its tombstones: only where no older run may still hold a row of their keys."""
    return run if run.tombstones is None else kept(run, ~run.tombstones)
