"""State tables as operators use them, over all of a task's shards: keyed ones, whatever the order, and timelines."""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from dagster_ckpt.hash_range import HASH_MAX, HashRange
from dagster_ckpt.lsm.columns import Positions, flat, flatten, take
from dagster_ckpt.lsm.runs.deltas import select
from dagster_ckpt.lsm.runs.run import build_run, build_tombstones
from dagster_ckpt.lsm.table import Found, FoundAll, Hashes, Touched
from dagster_ckpt.protocol.manifest.manifest import StateTableSpec
from dagster_ckpt.state.runs.run_layers import sort_value
from dagster_ckpt.state.tables.sorted_table import SortedTable


class KeyedTable:
    """Implements `lsm.table.StateTable`."""

    def __init__(self, spec: StateTableSpec, rows: SortedTable) -> None:
        self._spec = spec
        self._rows = rows

    def get(self, hashes: Hashes, keys: pa.Table) -> Found:
        order = ascending_order(hashes)
        if order is None:
            return self._rows.get(hashes, flatten(keys))
        found = self._rows.get(hashes[order], take(keys, order))
        present = np.empty_like(found.present)
        present[order] = found.present
        # Row j belongs to the j-th present key by hash: bring the rows into the order of the request.
        asked = order[found.present]
        return Found(present, take(found.rows, np.argsort(asked)))

    def get_all(self, hashes: Hashes, keys: pa.Table) -> FoundAll:
        order = ascending_order(hashes)
        if order is None:
            return self._rows.get_all(hashes, flatten(keys))
        found = self._rows.get_all(hashes[order], take(keys, order))
        asked = order[found.asked]
        back = np.argsort(asked, kind="stable")
        return FoundAll(asked[back], take(found.rows, back))

    def put(self, hashes: Hashes, rows: pa.Table, before: Found | None = None) -> None:
        assert rows.schema.equals(self._spec.schema), f"the rows have other columns. table={self._spec.name}"
        assert self._spec.time is None or rows.column(self._spec.time).null_count == 0, "every row needs a time"
        self._rows.stage(build_run(hashes, rows), _by_hash(before, hashes))

    def delete(self, hashes: Hashes, keys: pa.Table, before: Found | None = None) -> None:
        self._rows.stage(build_tombstones(hashes, keys, self._spec.schema), _by_hash(before, hashes))

    def expire(self, until_us: int) -> None:
        assert self._spec.time is not None, f"the table has no time column. table={self._spec.name}"
        self._rows.expire(until_us)

    def touched_keys(self) -> Iterator[Touched]:
        return self._rows.touched_keys()


def _by_hash(found: Found | None, hashes: Hashes) -> Found | None:
    """The answer in the order of the run that is made of these keys."""
    if found is None:
        return None
    assert len(found.present) == len(hashes), "the rows before are those of just these keys"
    order = ascending_order(hashes)
    return found if order is None else select(found, order)


def ascending_order(hashes: Hashes) -> Positions | None:
    """The positions of the hashes, least first; None where they are in that order."""
    if len(hashes) < 2 or (hashes[1:] >= hashes[:-1]).all():
        return None
    order: Positions = np.lexsort((hashes,))
    return order


_SIGN = np.uint64(2**63)


class TaskTimeline:
    """Implements `lsm.table.Timeline`. `tables` are the shards' own, `firsts` the least key hash of each."""

    def __init__(self, spec: StateTableSpec, tables: Sequence[SortedTable], firsts: Hashes) -> None:
        assert spec.time in spec.keys, f"a timeline's time is one of its keys. table={spec.name}"
        self._spec = spec
        self._time = spec.time
        self._tables = tables
        self._firsts = firsts

    def put(self, hashes: Hashes, rows: pa.Table) -> None:
        assert rows.schema.equals(self._spec.schema), f"the rows have other columns. table={self._spec.name}"
        for table, times, its_rows in self._by_shard(hashes, rows):
            table.stage(build_run(times, its_rows))

    def delete(self, hashes: Hashes, keys: pa.Table) -> None:
        for table, times, its_keys in self._by_shard(hashes, keys):
            table.stage(build_tombstones(times, its_keys, self._spec.schema))

    def scan(self, from_us: int | None, until_us: int | None) -> Iterator[pa.Table]:
        lo = 0 if from_us is None else sort_value(from_us)
        hi = HASH_MAX if until_us is None else sort_value(until_us) - 1
        if lo <= hi:
            for table in self._tables:
                yield from (run.columns() for run in table.scan(HashRange(lo, hi)))

    def expire(self, until_us: int) -> None:
        for table in self._tables:
            table.expire(until_us)

    def _by_shard(self, hashes: Hashes, rows: pa.Table) -> Iterator[tuple[SortedTable, Hashes, pa.Table]]:
        shards = np.searchsorted(self._firsts, hashes, side="right") - 1
        for shard in np.unique(shards).tolist():
            mine = np.flatnonzero(shards == shard)
            its_rows = take(rows, mine)
            times = flat(its_rows.column(self._time))
            assert times.null_count == 0, "every row needs a time"
            # As a signed number's bits, times before 1970 would come last.
            yield self._tables[shard], times.view(pa.int64()).to_numpy().view(np.uint64) ^ _SIGN, its_rows
