"""The interval join: rows of two inputs with equal keys and nearby event times."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from dagster_ckpt.lsm.columns import Positions, flat, take
from dagster_ckpt.lsm.table import Hashes, State
from dagster_ckpt.operators.joins import join_checks
from dagster_ckpt.operators.joins.appending_join import AppendingJoin, pipeline_of
from dagster_ckpt.operators.joins.arrivals import ARRIVED, BUCKET, epoch_arrivals, expire_arrivals, put_arrivals
from dagster_ckpt.operators.joins.interval.bucket_lookups import BucketLookups
from dagster_ckpt.operators.joins.interval.interval_matches import ArrivedRows, BucketMatches
from dagster_ckpt.operators.joins.interval.interval_state import IntervalState
from dagster_ckpt.operators.joins.interval_bounds import Interval
from dagster_ckpt.operators.joins.join_types import LEFT, RIGHT, JoinType
from dagster_ckpt.operators.joins.joined_rows import PAIRS, output_of, pairs_at_once
from dagster_ckpt.operators.joins.sides import Side
from dagster_ckpt.operators.operator import Changes, EpochContext, keys_of_inputs
from dagster_ckpt.operators.shared.bounded.output_pieces import OutputPieces
from dagster_ckpt.operators.shared.event_time_range import late_rows
from dagster_ckpt.operators.shared.late_rows import DROP
from dagster_ckpt.operators.shared.state_columns import HASH, ROW
from dagster_ckpt.protocol.manifest.manifest import InputSpec, Pipeline

NAME = "interval_join"


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
