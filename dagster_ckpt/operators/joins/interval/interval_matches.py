"""The matches of arrived rows in the other input's table of an interval join."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dagster_ckpt.lsm.columns import Positions, flat, take_array
from dagster_ckpt.lsm.runs.key_order import key_order
from dagster_ckpt.lsm.table import FoundAll, Hashes, StateTable
from dagster_ckpt.operators.joins.arrivals import BUCKET
from dagster_ckpt.operators.joins.interval.bucket_lookups import BucketLookups, BucketProbes
from dagster_ckpt.operators.joins.interval_bounds import Interval
from dagster_ckpt.operators.joins.join_types import LEFT
from dagster_ckpt.operators.joins.match_ranges import Matches, within
from dagster_ckpt.operators.joins.sides import Side, numbers_of
from dagster_ckpt.operators.shared.state_columns import hashes_in
from dagster_ckpt.operators.shared.subkeys import subkey_hashes


@dataclass(frozen=True)
class BucketMatches:
    """Matches of some rows with rows of the other input: row `at[i]` has the matches of row i in `matches`.

    `hashes` are those of the partners in their table.
    """

    at: Positions
    matches: Matches
    partners: pa.Table
    hashes: Hashes


@dataclass(frozen=True)
class ArrivedRows:
    """Rows of one side that can match, with the hashes of key and bucket."""

    side: Side
    other: Side
    interval: Interval
    hashes: Hashes
    rows: pa.Table

    def matches(self, table: StateTable, lookups: BucketLookups) -> Iterator[BucketMatches]:
        """All matches of the rows in the other input's table, each pair once.

        A bucket is at least as wide as the reach of a row. So a row reaches into the bucket of the same number and,
        perhaps, the next one on its side: it has at most two look-ups. Each reads the table as it is at that time, so a
        partner that the caller has deleted is not matched again.
        """
        reach = self.interval.reach(self.side.number, self.interval.places(self.side.number, self._times))
        for probes in self._probes(reach):
            for part, found in lookups.find(probes, lambda part: self._get(part, table)):
                if found.rows.num_rows:
                    yield self._matches(part, found, reach)

    @property
    def _times(self) -> Positions:
        return self.side.times(self.rows)

    def _probes(self, reach: tuple[Positions, Positions]) -> Iterator[BucketProbes]:
        groups = key_order(self.hashes, self.rows.select([*self.side.keys, BUCKET]))
        firsts = groups.order[groups.starts]
        group_of = np.empty(len(self.hashes), dtype=np.int64)
        group_of[groups.order] = np.repeat(np.arange(len(firsts)), groups.sizes)
        buckets = numbers_of(self.rows, BUCKET)
        yield BucketProbes(firsts, buckets[firsts], self.hashes[firsts], np.arange(len(group_of)), group_of)
        lows, highs = reach
        edges, step = (highs, 1) if self.side.number == LEFT else (lows, -1)
        at = np.flatnonzero(self.interval.buckets(edges) != buckets)
        if len(at):
            asks = np.zeros(len(firsts), dtype=np.bool_)
            asks[group_of[at]] = True
            rows = firsts[asks]
            beside = buckets[rows] + step
            key_hashes = hashes_in(self.rows)[rows]
            hashes = subkey_hashes(key_hashes, [pa.array(beside)])
            yield BucketProbes(rows, beside, hashes, at, (np.cumsum(asks) - 1)[group_of[at]])

    def _get(self, probes: BucketProbes, table: StateTable) -> FoundAll:
        keys = [take_array(flat(self.rows.column(key)), probes.rows) for key in self.side.keys]
        names = [*self.other.keys, BUCKET]
        return table.get_all(probes.hashes, pa.table([*keys, pa.array(probes.buckets)], names=names))

    def _matches(self, probes: BucketProbes, found: FoundAll, reach: tuple[Positions, Positions]) -> BucketMatches:
        # Relative to the start of its bucket, so no place is below 0.
        begins = probes.buckets * self.interval.bucket_us
        places = self.interval.places(self.other.number, self.other.times(found.rows)) - begins[found.asked]
        lows, highs = (bound[probes.at] - begins[probes.asked] for bound in reach)
        matches = within(found.asked, places, probes.asked, lows, highs, self.interval.bucket_us)
        return BucketMatches(probes.at, matches, found.rows, probes.hashes[found.asked])
