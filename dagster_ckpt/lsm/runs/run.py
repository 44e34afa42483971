"""A run: rows sorted by the hash of their key, each key once, some of them tombstones. It never changes."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dagster_ckpt.hash_range import HashRange
from dagster_ckpt.lsm.columns import Column, Mask, Positions, by_itself, flatten, stack, take, to_mask
from dagster_ckpt.lsm.runs.hash_index import Bloom, Directory, build_directory
from dagster_ckpt.lsm.runs.key_order import hash_order
from dagster_ckpt.lsm.table import Hashes
from dagster_ckpt.protocol.manifest.manifest import TimeRange

ABSENT = -1
"""The position of a key that is not there."""

_WIDE = 64
"""With more columns, replacing them one by one is the greatest cost: each makes a new table."""


class Guard(Protocol):
    """Checks bytes of a run's file before they are first used. All methods raise `CorruptStateError`."""

    def check_arrays(self, arrays: Sequence[pa.Array]) -> None:
        """Check all of these arrays of the file."""
        ...

    def check_slices(self, arrays: Sequence[pa.Array]) -> None:
        """Check all rows of these slices of arrays of the file."""
        ...

    def check_rows(self, arrays: Sequence[pa.Array], rows: Positions) -> list[bool]:
        """Check these rows of the arrays; returns for each whether all of it is checked now."""
        ...

    def check_items(self, items: npt.NDArray[Any], places: Positions) -> bool:
        """Check these items of an array of numbers in the file; returns whether all of it is checked now."""
        ...


@dataclass(frozen=True)
class Run:
    """A run in memory, or on a mapped file that is read only as far as it is used.

    `hash_column` ascends; keys with equal hashes are adjacent in any order. In a tombstone's row everything but the key
    is null or meaningless. `before_column`, of logged runs alone, is the row of each key before the epoch: the value
    columns, or null if there was no row. The table's columns have one chunk each.

    A file keeps integers narrow, and may be from a time when fewer values could be null: `schema` then has the table's
    types. The types of `before_column` stay as in the file.

    `guard` checks bytes of a file, for a whole column or some rows of it; None: nothing is to be checked. A file also
    has, where known, `stored_directory`, `stored_bloom`, the least and greatest hash (`bounds`) and time (`times`).
    """

    table: pa.Table
    hash_column: pa.Array
    tombstone_column: pa.Array | None = None
    before_column: pa.StructArray | None = None
    schema: pa.Schema | None = None
    guard: Guard | None = None
    stored_directory: Directory | None = None
    stored_bloom: Bloom | None = None
    bounds: HashRange | None = None
    times: TimeRange | None = None
    _checked: set["_Part"] = field(default_factory=set, compare=False, repr=False)

    def __len__(self) -> int:
        return len(self.hash_column)

    @cached_property
    def range(self) -> HashRange:
        """The least and greatest hash; of an empty run, none at all."""
        if self.bounds is not None:
            return self.bounds
        hashes = self.hashes
        return HashRange(int(hashes[0]), int(hashes[-1])) if len(hashes) else HashRange(1, 0)

    @cached_property
    def hashes(self) -> Hashes:
        """The rows' hashes, ascending."""
        self._check({_HASH: self.hash_column})
        return self._hashes

    @cached_property
    def tombstones(self) -> Mask | None:
        """Which rows are tombstones; None: none is."""
        if self.tombstone_column is None:
            return None
        self._check({_TOMBSTONE: self.tombstone_column})
        tombstones = to_mask(self.tombstone_column)
        return tombstones if tombstones.any() else None

    @cached_property
    def before(self) -> pa.StructArray | None:
        """The row of each key before the epoch, see `deltas`; None: the run is not a logged one."""
        if self.before_column is not None:
            self._check({_BEFORE: self.before_column})
        return self.before_column

    @cached_property
    def directory(self) -> Directory:
        """The directory of the hashes."""
        directory = self._directory
        if self._is_unchecked(_DIRECTORY):
            self._check_items(_DIRECTORY, directory.first, np.arange(len(directory.first)))
        return directory

    def read_index(self) -> None:
        """Read and check the directory and the Bloom filter: the parts of a file after its columns."""
        assert self.directory is not None
        if self.stored_bloom is not None and self._is_unchecked(_BLOOM):
            self._check_items(_BLOOM, self.stored_bloom.words, np.arange(len(self.stored_bloom.words)))

    def columns(self, names: Iterable[str] | None = None) -> pa.Table:
        """All rows, or some columns of them."""
        wanted = self.table.column_names if names is None else list(names)
        self._check({name: self._columns[name].stored for name in wanted})
        rows = self.table.select(wanted)
        if self.schema is None:
            return rows
        schema = pa.schema([self.schema.field(name) for name in wanted])
        if rows.schema.equals(schema):
            return rows
        if len(wanted) > _WIDE:
            # Making a table validates it, and of lists also bytes outside this slice, which are not checked.
            return pa.Table.from_arrays([by_itself(self._columns[name].whole()) for name in wanted], schema=schema)
        for at, each in enumerate(schema):
            # One by one, without validating the others: for few columns that is cheaper than copying nested ones.
            if not rows.field(at).equals(each):
                rows = rows.set_column(at, each, self._columns[each.name].whole())
        return rows

    def without_images(self) -> "Run":
        """The run without its before images."""
        return self if self.before_column is None else replace(self, before_column=None)

    def with_columns(self, names: Sequence[str]) -> "Run":
        """The run with only these columns, without reading any."""
        return replace(self, table=self.table.select(names))

    def slice(self, start: int, until: int) -> "Run":
        """The rows `[start, until)`, without a copy; in a file, all their bytes are read and checked."""
        if start == 0 and until == len(self):
            return self
        rows = until - start
        if self.guard is not None:
            arrays = [array for part, array in self._arrays().items() if part not in self._checked]
            # A slice of a table counts its nulls at once, and must not read unchecked bytes.
            self.guard.check_slices([array.slice(start, rows) for array in arrays])
        return Run(
            self.table.slice(start, rows),
            self.hash_column.slice(start, rows),
            None if self.tombstone_column is None else self.tombstone_column.slice(start, rows),
            None if self.before_column is None else self.before_column.slice(start, rows),
            self.schema,
        )

    def load(self) -> "Run":
        """The run with all its rows read and checked: it reads nothing more, so any thread may use it."""
        if self.guard is None:
            return self
        self._check(self._arrays())
        return Run(
            self.table,
            self.hash_column,
            self.tombstone_column,
            self.before_column,
            self.schema,
            bounds=self.bounds,
            times=self.times,
        )

    @property
    def nbytes(self) -> int:
        """The bytes that the rows hold in memory. Load the run first: Arrow reads offsets to count them."""
        assert self.guard is None, "the run is not loaded"
        return sum(int(array.nbytes) for array in self._arrays().values())

    def columns_at(self, names: Sequence[str], rows: Positions) -> list[Column]:
        """These columns, whole; use only the values at `rows`."""
        self._check_rows({name: self._columns[name].stored for name in names}, rows)
        return [self._columns[name] for name in names]

    def hashes_at(self, rows: Positions) -> Hashes:
        """The hashes of some rows."""
        self._check_rows({_HASH: self.hash_column}, rows)
        return np.take(self._hashes, rows)

    def dead_at(self, rows: Positions) -> Mask | None:
        """Which of some rows are tombstones; None: the run has none."""
        if self.tombstone_column is None:
            return None
        if self.guard is None:
            return None if self.tombstones is None else np.take(self.tombstones, rows)
        self._check_rows({_TOMBSTONE: self.tombstone_column}, rows)
        return to_mask(self.tombstone_column.take(pa.array(rows)))

    def may_have(self, hashes: Hashes) -> Positions | None:
        """Which of these hashes, all within `range`, may be in the run; None: it has no Bloom filter."""
        bloom = self.stored_bloom
        if bloom is not None and self._is_unchecked(_BLOOM):
            self._check_items(_BLOOM, bloom.words, bloom.cells(hashes))
        return None if bloom is None else bloom.may_have(hashes)

    def may_hold_times_before(self, time_us: int) -> bool:
        """Whether a row of the run may be older than `time_us`; False: none is."""
        return self.times is None or self.times.least_us < time_us

    def first_not_less(self, hash_: int) -> int:
        """The first position whose hash is not less than this; the number of rows if all are less."""
        if hash_ <= self.range.lo:
            return 0
        if hash_ > self.range.hi:
            return len(self)
        [cell] = self.cells(np.array([hash_], dtype=np.uint64))
        first, end = map(int, self.first_at(np.array([cell, cell + 1])))
        if self.guard is not None and _HASH not in self._checked:
            self.guard.check_slices([self.hash_column.slice(first, end + 1 - first)])
        return first + int(np.searchsorted(self._hashes[first : end + 1], np.uint64(hash_)))

    def cells(self, hashes: Hashes) -> Positions:
        """The directory's cells for these hashes, all within `range`."""
        return self._directory.cells(hashes)

    def first_at(self, cells: Positions) -> Positions:
        """The first position of each of these cells of the directory; after the last cell, the last position."""
        first = self._directory.first
        inside = np.minimum(cells, len(first) - 1)
        if self._is_unchecked(_DIRECTORY):
            self._check_items(_DIRECTORY, first, inside)
        return np.where(cells < len(first), np.take(first, inside), len(self) - 1)

    def _arrays(self) -> dict["_Part", pa.Array]:
        """All columns, not checked yet."""
        parts = {_HASH: self.hash_column, _TOMBSTONE: self.tombstone_column, _BEFORE: self.before_column}
        arrays: dict[_Part, pa.Array] = {part: array for part, array in parts.items() if array is not None}
        return arrays | {name: column.stored for name, column in self._columns.items()}

    @cached_property
    def _columns(self) -> dict[str, Column]:
        types = self.table.schema if self.schema is None else self.schema
        names = self.table.column_names
        return {name: Column(self.table.column(name).chunk(0), types.field(name).type) for name in names}

    @cached_property
    def _hashes(self) -> Hashes:
        """The hashes, not checked yet."""
        hashes: Hashes = self.hash_column.to_numpy()
        return hashes

    @cached_property
    def _directory(self) -> Directory:
        """The directory; a stored one is not checked yet."""
        return build_directory(self.hashes) if self.stored_directory is None else self.stored_directory

    def _is_unchecked(self, part: "_Part") -> bool:
        return self.guard is not None and part not in self._checked

    def _check(self, arrays: Mapping["_Part", pa.Array]) -> None:
        """Check those of these columns that are not checked yet."""
        if self.guard is not None and (missing := [part for part in arrays if part not in self._checked]):
            self.guard.check_arrays([arrays[part] for part in missing])
            self._checked.update(missing)

    def _check_rows(self, arrays: Mapping["_Part", pa.Array], rows: Positions) -> None:
        """Check these rows in those of the columns that are not checked yet."""
        if self.guard is not None and (missing := [part for part in arrays if part not in self._checked]):
            whole = self.guard.check_rows([arrays[part] for part in missing], rows)
            self._checked.update(part for part, is_whole in zip(missing, whole, strict=True) if is_whole)

    def _check_items(self, part: "_Part", items: npt.NDArray[Any], places: Positions) -> None:
        # A directory that was not stored is in no file.
        if self.guard is None or self.stored_directory is None or self.guard.check_items(items, places):
            self._checked.add(part)


_Part = str | int
"""A part of a run's file: a column's name, or one of these numbers, since a column may have any name."""
_HASH, _TOMBSTONE, _BEFORE, _DIRECTORY, _BLOOM = range(5)


def build_run(hashes: Hashes, rows: pa.Table, tombstones: Mask | None = None) -> Run:
    """A run in memory of n distinct keys in any order."""
    if len(hashes) > 1 and (hashes[1:] < hashes[:-1]).any():
        order = hash_order(hashes)
        hashes, rows = np.take(hashes, order), take(rows, order)
        tombstones = None if tombstones is None else np.take(tombstones, order)
    return Run(flatten(rows), pa.array(hashes), None if tombstones is None else pa.array(tombstones))


def build_tombstones(hashes: Hashes, keys: pa.Table, schema: pa.Schema) -> Run:
    """A run in memory of tombstones for n distinct keys."""
    n = len(hashes)
    named = set(keys.column_names)
    columns = [keys.column(f.name) if f.name in named else pa.nulls(n, f.type) for f in schema]
    return build_run(hashes, pa.Table.from_arrays(columns, schema=schema), np.ones(n, dtype=np.bool_))


def filter_run(run: Run, wanted: Mask) -> Run:
    """Only the wanted rows of the run, without before images where rows are dropped."""
    return rows_at(run, np.flatnonzero(wanted))


def rows_at(run: Run, at: Positions) -> Run:
    """Only the rows at these positions, which ascend, without before images where rows are dropped."""
    if len(at) == len(run):
        return run
    tombstones = None if run.tombstones is None else np.take(run.tombstones, at)
    return build_run(np.take(run.hashes, at), take(run.columns(), at), tombstones)


def one_after_another(runs: Sequence[Run]) -> Run:
    """Runs of ascending hashes as one; of several, without before images. At least one run."""
    if len(runs) == 1:
        return runs[0]
    tombstones = joined_tombstones(runs)
    hashes = pa.array(np.concatenate([run.hashes for run in runs]))
    rows = stack([run.columns() for run in runs])
    return Run(rows, hashes, None if tombstones is None else pa.array(tombstones))


def joined_tombstones(runs: Sequence[Run]) -> Mask | None:
    """Which rows of all runs, concatenated, are tombstones; None: none is."""
    if all(run.tombstones is None for run in runs):
        return None
    each = [np.zeros(len(run), dtype=np.bool_) if run.tombstones is None else run.tombstones for run in runs]
    return np.concatenate(each)


def live(run: Run) -> Run:
    """The run without its tombstones. Use it only if no older run may still hold a row of their keys."""
    return run if run.tombstones is None else filter_run(run, ~run.tombstones)
