"""What rows that came in meet in the other input's table of an interval join."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dagster_ckpt.lsm.columns import Positions, flat, taken
from dagster_ckpt.lsm.runs.key_order import key_order
from dagster_ckpt.lsm.table import FoundAll, Hashes, StateTable
from dagster_ckpt.operators.joins.arrivals import BUCKET
from dagster_ckpt.operators.joins.interval.bucket_lookups import Answers, Questions
from dagster_ckpt.operators.joins.interval_bounds import Interval
from dagster_ckpt.operators.joins.join_types import LEFT
from dagster_ckpt.operators.joins.match_ranges import Matches, within
from dagster_ckpt.operators.joins.sides import Side, numbers_of
from dagster_ckpt.operators.shared.state_columns import hashes_in
from dagster_ckpt.operators.shared.subkeys import subkey_hashes


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
class Arrived:
    """Rows of one side that can match, with the hashes of key and bucket."""

    side: Side
    other: Side
    interval: Interval
    hashes: Hashes
    rows: pa.Table

    def meetings(self, table: StateTable, answers: Answers) -> Iterator[Meeting]:
        """All that the rows match in the other input's table: no pair is in two meetings.

        A bucket is at least as wide as a row reaches. So a row reaches into that with its own number and, perhaps, the
        next one on its side: it is in at most two meetings. Each looks up what was not looked up before, in what the
        table has by then: a partner that the caller lets go is not met again.
        """
        reach = self.interval.reach(self.side.number, self.interval.places(self.side.number, self._times))
        for questions in self._questions(reach):
            for part, found in answers.to(questions, lambda part: self._asked(part, table)):
                if found.rows.num_rows:
                    yield self._meeting(part, found, reach)

    @property
    def _times(self) -> Positions:
        return self.side.times(self.rows)

    def _questions(self, reach: tuple[Positions, Positions]) -> Iterator[Questions]:
        groups = key_order(self.hashes, self.rows.select([*self.side.keys, BUCKET]))
        firsts = groups.order[groups.starts]
        group_of = np.empty(len(self.hashes), dtype=np.int64)
        group_of[groups.order] = np.repeat(np.arange(len(firsts)), groups.sizes)
        buckets = numbers_of(self.rows, BUCKET)
        yield Questions(firsts, buckets[firsts], self.hashes[firsts], np.arange(len(group_of)), group_of)
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
            yield Questions(rows, beside, hashes, at, (np.cumsum(asks) - 1)[group_of[at]])

    def _asked(self, questions: Questions, table: StateTable) -> FoundAll:
        keys = [taken(flat(self.rows.column(key)), questions.rows) for key in self.side.keys]
        names = [*self.other.keys, BUCKET]
        return table.get_all(questions.hashes, pa.table([*keys, pa.array(questions.buckets)], names=names))

    def _meeting(self, questions: Questions, found: FoundAll, reach: tuple[Positions, Positions]) -> Meeting:
        # Counted from the beginning of its bucket, no place is less than 0.
        begins = questions.buckets * self.interval.bucket_us
        places = self.interval.places(self.other.number, self.other.times(found.rows)) - begins[found.asked]
        lows, highs = (bound[questions.at] - begins[questions.asked] for bound in reach)
        matches = within(found.asked, places, questions.asked, lows, highs, self.interval.bucket_us)
        return Meeting(questions.at, matches, found.rows, questions.hashes[found.asked])
