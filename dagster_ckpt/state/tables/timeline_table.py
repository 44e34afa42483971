"""A timeline as operators use it: a table sorted by time for each of the task's shards."""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from dagster_ckpt.hash_range import HASH_MAX, HashRange
from dagster_ckpt.lsm.columns import flat, take
from dagster_ckpt.lsm.runs.run import run_of, tombstones_of
from dagster_ckpt.lsm.table import Hashes
from dagster_ckpt.protocol.manifest.manifest import StateTableSpec
from dagster_ckpt.state.runs.run_expiry import sort_value_of
from dagster_ckpt.state.tables.sorted_table import SortedTable

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
            table.stage(run_of(times, its_rows))

    def delete(self, hashes: Hashes, keys: pa.Table) -> None:
        for table, times, its_keys in self._by_shard(hashes, keys):
            table.stage(tombstones_of(times, its_keys, self._spec.schema))

    def scan(self, from_us: int | None, until_us: int | None) -> Iterator[pa.Table]:
        lo = 0 if from_us is None else sort_value_of(from_us)
        hi = HASH_MAX if until_us is None else sort_value_of(until_us) - 1
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
