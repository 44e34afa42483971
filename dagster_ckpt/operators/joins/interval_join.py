"""The interval join: rows of two inputs with equal keys and nearby event times."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from dagster_ckpt.lsm.columns import Mask, Positions, flat, take, take_array
from dagster_ckpt.lsm.runs.key_order import key_order
from dagster_ckpt.lsm.table import FoundAll, Hashes, State, StateTable
from dagster_ckpt.operators.joins import join_checks
from dagster_ckpt.operators.joins.appending_join import AppendingJoin, pipeline_of
from dagster_ckpt.operators.joins.arrivals import (
    ARRIVED,
    BUCKET,
    arrivals_spec,
    epoch_arrivals,
    expire_arrivals,
    put_arrivals,
)
from dagster_ckpt.operators.joins.bucket_lookups import BucketLookups, BucketProbes
from dagster_ckpt.operators.joins.interval_bounds import Interval
from dagster_ckpt.operators.joins.join_types import LEFT, RIGHT, JoinType
from dagster_ckpt.operators.joins.joined_rows import PAIRS, output_of, pairs_at_once
from dagster_ckpt.operators.joins.match_ranges import Matches, within
from dagster_ckpt.operators.joins.sides import Side, numbers_of, shape_rows
from dagster_ckpt.operators.operator import Changes, EpochContext, keys_of_inputs
from dagster_ckpt.operators.shared.bounded.output_pieces import OutputPieces
from dagster_ckpt.operators.shared.event_time_range import late_rows
from dagster_ckpt.operators.shared.late_rows import DROP
from dagster_ckpt.operators.shared.state_columns import HASH, ROW, hash_column, hashes_in, whole_number
from dagster_ckpt.operators.shared.subkeys import subkey_hashes
from dagster_ckpt.protocol.manifest.manifest import InputSpec, Pipeline, SortKind, StateTableSpec

NAME = "interval_join"


@dataclass(frozen=True)
class IntervalState:
    """The state tables of one side.

    In the table a row is stored under the hash of key and bucket (here: its hash), and expires by its event time. If
    unmatched rows are emitted, a timeline has the full rows without a match so far, to emit them without a look-up. An
    inner join has no timeline. A row that a match ends (`ends_with_a_match`) is deleted with it.
    """

    side: Side
    how: JoinType

    @property
    def specs(self) -> tuple[StateTableSpec, ...]:
        """All state tables of the side."""
        timeline = (self._unmatched_table,) if self._keeps_unmatched else ()
        return arrivals_spec(self.side), self._rows, *timeline

    @property
    def identity(self) -> tuple[str, ...]:
        """The columns by which `have_matched` identifies a row."""
        return (*self.side.keys_and_time, BUCKET, ROW)

    def table(self, state: State) -> StateTable:
        """The rows by key and bucket."""
        return state.table(self._rows.name)

    def put(self, hashes: Hashes, rows: pa.Table, matched: Mask, state: State) -> None:
        """Keep arrived rows that can match, some of which have matched already."""
        unmatched = np.flatnonzero(~matched)
        if self.how.ends_with_a_match(self.side.number):
            hashes, rows, unmatched = _only(hashes, rows, unmatched)
        self.table(state).put(hashes, shape_rows(self._rows.schema, rows, {}))
        if self._keeps_unmatched:
            hashes, rows, _ = _only(hashes, rows, unmatched)
            added = {HASH: hash_column(hashes)}
            state.timeline(self._unmatched_table.name).put(
                hashes, shape_rows(self._unmatched_table.schema, rows, added)
            )

    def have_matched(self, hashes: Hashes, rows: pa.Table, state: State) -> None:
        """Record that distinct rows of the table have matched, perhaps not for the first time."""
        if self.how.ends_with_a_match(self.side.number):
            self.table(state).delete(hashes, rows.select(list(self._rows.keys)))
        if self._keeps_unmatched:
            state.timeline(self._unmatched_table.name).delete(hashes, rows.select(list(self._unmatched_table.keys)))

    def due(self, until_us: int, state: State) -> Iterator[pa.Table]:
        """The unmatched rows before that moment, in pieces."""
        if self._keeps_unmatched:
            yield from state.timeline(self._unmatched_table.name).scan(None, until_us)

    def expire(self, until_us: int, state: State) -> None:
        """Expire the rows before that moment."""
        self.table(state).expire(until_us)
        if self._keeps_unmatched:
            state.timeline(self._unmatched_table.name).expire(until_us)

    @property
    def _keeps_unmatched(self) -> bool:
        return self.how.keeps_unmatched(self.side.number)

    @property
    def _rows(self) -> StateTableSpec:
        # Rows of an anti join are emitted from the timeline alone.
        names = self.side.keys_and_time if self.how is JoinType.ANTI else self.side.schema.names
        fields = [*map(self.side.schema.field, names), whole_number(BUCKET), whole_number(ROW)]
        keys = (*self.side.keys, BUCKET, ROW)
        return StateTableSpec(self.side.name, pa.schema(fields), keys, time=self.side.time)

    @property
    def _unmatched_table(self) -> StateTableSpec:
        time = self.side.time
        schema = pa.schema([*self.side.schema, whole_number(HASH), whole_number(ROW)])
        return StateTableSpec(f"{self.side.name}_unmatched", schema, (time, ROW), SortKind.TIME, time=time)


def _only(hashes: Hashes, rows: pa.Table, chosen: Positions) -> tuple[Hashes, pa.Table, Positions]:
    """These of the rows, and the positions of all of them."""
    if len(chosen) < len(hashes):
        hashes, rows = hashes[chosen], take(rows, chosen)
    return hashes, rows, np.arange(len(chosen))


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


@dataclass(frozen=True)
class IntervalJoin(AppendingJoin):
    """Pairs with equal keys and `left.time + lower <= right.time <= left.time + upper`, in the epoch of the later row.

    Null equals nothing. An unmatched row, if the join type keeps it, is emitted in the first epoch at whose watermark
    all rows that match it would be late; a row without a key or an event time is emitted at once. A row is late if its
    event time is before the watermark, or out of range.
    """

    interval: Interval
    states: tuple[IntervalState, IntervalState]

    @classmethod
    def build(
        cls,
        inputs: Sequence[InputSpec],
        keys: Sequence[tuple[str, ...]],
        event_times: Sequence[str | None],
        lower_us: int,
        upper_us: int,
        how: str = JoinType.INNER,
        late: str = DROP,
    ) -> "IntervalJoin":
        """Check and plan the operator; raises `InvalidPipelineError`. The keys are compared in pairs.

        `inputs` have all columns of the two inputs, `pipeline.inputs` those that `on_rows` reads, or all if late rows
        are kept.
        """
        type_, sides = join_checks.checked_sides(inputs, keys, event_times, how, late)
        join_checks.check_bounds(lower_us, upper_us)
        join_checks.check_names(sides, type_, added=(), state=(BUCKET, HASH, ROW, ARRIVED))
        left, right = (IntervalState(side, type_) for side in sides)
        output = output_of(*sides, type_)
        join_checks.check_output(output.schema)
        options = {"lower_us": lower_us, "upper_us": upper_us, "how": str(type_)}
        pipeline = pipeline_of(NAME, inputs, sides, options, (*left.specs, *right.specs), output, late)
        return cls(pipeline, type_, output, Interval(lower_us, upper_us), (left, right))

    @classmethod
    def expiring(
        cls,
        inputs: Sequence[InputSpec],
        keys: Sequence[tuple[str, ...]],
        event_times: Sequence[str | None],
        expire_after_us: int,
        how: str = JoinType.INNER,
        late: str = DROP,
    ) -> "IntervalJoin":
        """A join with expiration: rows match if their event times are at most `expire_after_us` apart.

        Keeping each row for that long, and matching whatever arrives until then, would not be the same: it would depend
        on when the watermark advances, and so on the boundaries of epochs. The same rows, replayed, would give another
        table. The distance of two event times never changes.
        """
        join_checks.check_expire_after(expire_after_us)
        return cls.build(inputs, keys, event_times, -expire_after_us, expire_after_us, how, late)

    @classmethod
    def from_pipeline(cls, pipeline: Pipeline) -> "IntervalJoin":
        """The same operator from its fingerprint."""
        options: dict[str, Any] = pipeline.parameters
        bounds_us = options["lower_us"], options["upper_us"]
        keys, times = keys_of_inputs(pipeline), options["event_times"]
        return cls.build(pipeline.inputs, keys, times, *bounds_us, options["how"], options["late"])

    @property
    def horizon_us(self) -> int | None:
        waits = any(self.how.keeps_unmatched(number) for number in (LEFT, RIGHT))
        return self.interval.horizon_us if waits else None

    def on_rows(self, number: int, hashes: Hashes, rows: pa.Table, state: State, context: EpochContext) -> Positions:
        side = self._side(number)
        late = late_rows(flat(rows.column(side.time)), context.watermark_us)
        wanted = side.usable(rows, self.how, late)
        if not wanted.all():
            hashes, rows = hashes[wanted], take(rows, np.flatnonzero(wanted))
        if rows.num_rows:
            put_arrivals(side, self.interval, hashes, rows, state, context)
        return late

    def finish(self, state: State, context: EpochContext) -> Iterator[Changes]:
        pieces = OutputPieces(self.output.schema, context.memory_bytes // 2)
        # Join new rights with the lefts of earlier epochs, then new lefts with all rights: each pair once.
        for number in (RIGHT, LEFT):
            lookups = BucketLookups(context.memory_bytes // 4)
            for hashes, rows in epoch_arrivals(self._side(number), state):
                for result in self._join(number, hashes, rows, state, context, lookups):
                    yield from pieces.add(result)
                yield from pieces.count(rows.nbytes)
            expire_arrivals(self._side(number), state)
        if context.watermark_us is not None:
            for number, kept in enumerate(self.states):
                until_us = self.interval.until_us(number, context.watermark_us)
                for rows in kept.due(until_us, state):
                    yield from pieces.add(self.emit_unmatched(number, rows, context))
                kept.expire(until_us, state)
        yield from pieces.rest()

    def _side(self, number: int) -> Side:
        return self.states[number].side

    def _join(
        self,
        number: int,
        hashes: Hashes,
        rows: pa.Table,
        state: State,
        context: EpochContext,
        lookups: BucketLookups,
    ) -> Iterator[pa.Table]:
        """Join arrived rows with the kept rows of the other input, then keep them."""
        matchable = self._side(number).matchable(rows)
        if not matchable.all():
            yield self.emit_unmatched(number, take(rows, np.flatnonzero(~matchable)), context)
            hashes, rows = hashes[matchable], take(rows, np.flatnonzero(matchable))
        if rows.num_rows == 0:
            return
        other = 1 - number
        matched = np.zeros(rows.num_rows, dtype=np.bool_)
        arrivals = ArrivedRows(self._side(number), self._side(other), self.interval, hashes, rows)
        for found in arrivals.matches(self.states[other].table(state), lookups):
            matched[found.at[found.matches.has_match]] = True
            if self.how.gives_pairs:
                yield from self._pairs(number, rows, found, context)
            yield from self._partners(other, found, state)
        if self.how is JoinType.SEMI and number == LEFT:
            yield self.output.alone(LEFT, take(rows, np.flatnonzero(matched)))
        self.states[number].put(hashes, rows, matched, state)

    def _pairs(self, number: int, rows: pa.Table, found: BucketMatches, context: EpochContext) -> Iterator[pa.Table]:
        partners = found.partners
        most = pairs_at_once(rows, partners, context.memory_bytes // 2)
        for pair_rows, pair_partners in found.matches.pairs(most):
            context.counters[PAIRS] += len(pair_rows)
            at = found.at[pair_rows]
            if number == LEFT:
                yield self.output.pairs(rows, at, partners, pair_partners)
            else:
                yield self.output.pairs(partners, pair_partners, rows, at)

    def _partners(self, number: int, found: BucketMatches, state: State) -> Iterator[pa.Table]:
        """Record that kept rows have matched, where the join type needs it."""
        if not (self.how.keeps_unmatched(number) or self.how.ends_with_a_match(number)):
            return
        at = found.matches.partners_matched
        if len(at) == 0:
            return
        kept = self.states[number]
        partners = found.partners if self.how is JoinType.SEMI else found.partners.select(list(kept.identity))
        partners = take(partners, at)
        if self.how is JoinType.SEMI:
            yield self.output.alone(number, partners)
        kept.have_matched(found.hashes[at], partners, state)
