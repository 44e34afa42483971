"""What rows that came in meet in the other input's table of an interval join."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dagster_ckpt.lsm.columns import Positions, flat, taken
from dagster_ckpt.lsm.key_order import key_order
from dagster_ckpt.lsm.table import Hashes, StateTable
from dagster_ckpt.operators.joins.arrivals import BUCKET
from dagster_ckpt.operators.joins.bounds import Interval
from dagster_ckpt.operators.joins.how import LEFT
from dagster_ckpt.operators.joins.matching import Matches, within
from dagster_ckpt.operators.joins.sides import Side, numbers_of
from dagster_ckpt.operators.own_columns import hashes_in
from dagster_ckpt.operators.subkeys import subkey_hashes


@dataclass(frozen=True)
class Meeting:
    """Some rows, and rows of the other input that they may match: row `at[i]` matches what `matches` says of i.

    `hashes` are those of the partners in their table.
    """

    at: Positions
    matches: Matches
    partners: pa.Table
    hashes: Hashes


@dataclass(frozen=True)
class _Question:
    """The buckets to look into: bucket i under the key of row `rows[i]`. Row `at[j]` asks about bucket `asked[j]`."""

    rows: Positions
    buckets: Positions
    hashes: Hashes
    at: Positions
    asked: Positions


@dataclass(frozen=True)
class Arrived:
    """Rows of one side that can match, with the hashes of key and bucket."""

    side: Side
    other: Side
    interval: Interval
    hashes: Hashes
    rows: pa.Table

    def meetings(self, table: StateTable) -> Iterator[Meeting]:
        """All that the rows match in the other input's table: at most two meetings, and no pair in both.

        A bucket is at least as wide as a row reaches. So a row reaches into that with its own number and, perhaps, the
        next one on its side.
        """
        reach = self.interval.reach(self.side.number, self.interval.places(self.side.number, self._times))
        for question in self._questions(reach):
            meeting = self._meeting(question, reach, table)
            if meeting is not None:
                yield meeting

    @property
    def _times(self) -> Positions:
        return self.side.times(self.rows)

    def _questions(self, reach: tuple[Positions, Positions]) -> Iterator[_Question]:
        groups = key_order(self.hashes, self.rows.select([*self.side.keys, BUCKET]))
        firsts = groups.order[groups.starts]
        group_of = np.empty(len(self.hashes), dtype=np.int64)
        group_of[groups.order] = np.repeat(np.arange(len(firsts)), groups.sizes)
        buckets = numbers_of(self.rows, BUCKET)
        yield _Question(firsts, buckets[firsts], self.hashes[firsts], np.arange(len(group_of)), group_of)
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
            yield _Question(rows, beside, hashes, at, (np.cumsum(asks) - 1)[group_of[at]])

    def _meeting(self, question: _Question, reach: tuple[Positions, Positions], table: StateTable) -> Meeting | None:
        keys = [taken(flat(self.rows.column(key)), question.rows) for key in self.side.keys]
        names = [*self.other.keys, BUCKET]
        found = table.get_all(question.hashes, pa.table([*keys, pa.array(question.buckets)], names=names))
        if found.rows.num_rows == 0:
            return None
        # Counted from the beginning of its bucket, no place is less than 0.
        begins = question.buckets * self.interval.bucket_us
        places = self.interval.places(self.other.number, self.other.times(found.rows)) - begins[found.asked]
        lows, highs = (bound[question.at] - begins[question.asked] for bound in reach)
        matches = within(found.asked, places, question.asked, lows, highs, self.interval.bucket_us)
        return Meeting(question.at, matches, found.rows, question.hashes[found.asked])
