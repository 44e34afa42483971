"""The window join and the instant join: rows of two inputs with equal keys that are in the same window."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from dagster_ckpt.lsm.columns import Positions, concat, flat, from_plain, take
from dagster_ckpt.lsm.table import Hashes, State, Timeline
from dagster_ckpt.operators.joins import join_checks
from dagster_ckpt.operators.joins.appending_join import AppendingJoin, pipeline_of
from dagster_ckpt.operators.joins.arrivals import ARRIVED, MOMENT
from dagster_ckpt.operators.joins.join_types import LEFT, RIGHT, JoinType
from dagster_ckpt.operators.joins.joined_rows import PAIRS, output_of, pairs_at_once
from dagster_ckpt.operators.joins.match_ranges import Matches, of_equal_keys
from dagster_ckpt.operators.joins.sides import Side, no_nulls, shape_rows
from dagster_ckpt.operators.operator import Changes, EpochContext, Origins, keys_of_inputs
from dagster_ckpt.operators.shared.bounded.due_rows import due_together
from dagster_ckpt.operators.shared.bounded.output_pieces import OutputPieces
from dagster_ckpt.operators.shared.event_time_range import out_of_range
from dagster_ckpt.operators.shared.late_rows import DROP
from dagster_ckpt.operators.shared.state_columns import HASH, ROW, hash_column, hashes_in, whole_number
from dagster_ckpt.operators.shared.subkeys import subkey_hashes
from dagster_ckpt.operators.shared.window_kinds import (
    WINDOW_END,
    WINDOW_START,
    Assigned,
    FixedWindow,
    Tumbling,
    are_open,
    bound_origins,
    window_as_json,
    window_from_json,
)
from dagster_ckpt.protocol.manifest.manifest import InputSpec, Pipeline, SortKind, StateTableSpec

START = "_start"
"""The start of a row's window."""

_ROWS_MAX = 1 << 20
"""The rows to put at once; a row counts once for each window it is in."""

NAME = "window_join"
_INSTANT = Tumbling(1)
"""An instant is a window of a single microsecond."""


@dataclass(frozen=True)
class OpenWindows:
    """The windows whose end the watermark has not reached."""

    window: FixedWindow
    watermark_us: int | None

    def late(self, rows: pa.Table, side: Side) -> Positions:
        """Positions of the rows whose windows are all closed, or whose time is out of range, ascending.

        A row without an event time is in no window, and not late.
        """
        timed = np.flatnonzero(no_nulls(rows, (side.time,)))
        times = side.times(rows)[timed]
        is_open = are_open(self.window, self.window.last_starts(times), self.watermark_us)
        late: Positions = timed[~is_open | out_of_range(times)]
        return late

    def assign(self, times: Positions) -> Assigned:
        """The open windows of rows with these event times."""
        every = self.window.assign(times)
        open_ = are_open(self.window, every.starts, self.watermark_us)
        return every if open_.all() else Assigned(every.rows[open_], every.starts[open_])


@dataclass(frozen=True)
class WindowState:
    """The timelines of one side: its rows by window and, if it keeps unmatched rows, those without an event time."""

    side: Side
    how: JoinType

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that the state adds to those of the input."""
        return START, HASH, ROW, ARRIVED

    @property
    def spec(self) -> StateTableSpec:
        """The timeline of the rows by window; all rows of a window have the same time."""
        added = [
            pa.field(START, self.side.schema.field(self.side.time).type, nullable=False),
            whole_number(HASH),
            whole_number(ROW),
        ]
        return StateTableSpec(
            self.side.name, pa.schema([*self.side.schema, *added]), (START, ROW), SortKind.TIME, time=START
        )

    @property
    def specs(self) -> tuple[StateTableSpec, ...]:
        """All timelines of the side."""
        return (self.spec, self._timeless) if self._keeps_unmatched else (self.spec,)

    def timeline(self, state: State) -> Timeline:
        """The rows by window."""
        return state.timeline(self.spec.name)

    def put(self, hashes: Hashes, rows: pa.Table, open_: OpenWindows, state: State, context: EpochContext) -> None:
        """Put rows with an event time, each into all its open windows. `hashes` are those of the keys."""
        spec, times = self.spec, self.side.times(rows)
        numbers = context.row_numbers(len(times)).to_numpy()  # a row has the same number in each window
        step = max(1, _ROWS_MAX // open_.window.windows_of_a_row)
        for first in range(0, len(times), step):
            assigned = open_.assign(times[first : first + step])
            at = assigned.rows + first
            its_hashes, its_rows = hashes, rows
            if open_.window.windows_of_a_row > 1 or len(at) < len(times):
                its_hashes, its_rows = hashes[at], take(rows, at)
            added = {
                START: pa.array(assigned.starts).view(spec.schema.field(START).type),
                HASH: hash_column(its_hashes),
                ROW: pa.array(numbers[at]),
            }
            self.timeline(state).put(its_hashes, shape_rows(spec.schema, its_rows, added))

    def put_timeless(self, hashes: Hashes, rows: pa.Table, state: State, context: EpochContext) -> None:
        """Keep rows without an event time until the end of the epoch."""
        added = {
            ARRIVED: from_plain(np.zeros(rows.num_rows, dtype=np.int64), MOMENT),
            ROW: context.row_numbers(rows.num_rows),
        }
        state.timeline(self._timeless.name).put(hashes, shape_rows(self._timeless.schema, rows, added))

    def timeless(self, state: State) -> Iterator[pa.Table]:
        """The rows without an event time that arrived in this epoch, in pieces."""
        if self._keeps_unmatched:
            yield from state.timeline(self._timeless.name).scan(None, None)

    def expire_timeless(self, state: State) -> None:
        """Expire the rows without an event time once they are emitted."""
        if self._keeps_unmatched:
            state.timeline(self._timeless.name).expire(1)

    @property
    def _keeps_unmatched(self) -> bool:
        return self.how.keeps_unmatched(self.side.number)

    @property
    def _timeless(self) -> StateTableSpec:
        added = [pa.field(ARRIVED, MOMENT, nullable=False), whole_number(ROW)]
        schema = pa.schema([*self.side.schema, *added])
        return StateTableSpec(f"{self.side.name}_timeless", schema, (ARRIVED, ROW), SortKind.TIME, time=ARRIVED)


@dataclass(frozen=True)
class WindowedJoin(AppendingJoin):
    """Rows of both inputs with equal keys in the same window, or with the same event time where there is no window.

    They wait until the watermark reaches the end of the window; then the window is closed and its whole result emitted.
    So the result of an instant t is emitted when the watermark is beyond t. Null equals nothing. A row without an event
    time is in no window: it is emitted at once if the join type keeps unmatched rows. A row is joined in all its open
    windows. It is late if all are closed; in a join by instants, if its time is before the watermark.
    """

    window: FixedWindow | None
    states: tuple[WindowState, WindowState]

    @classmethod
    def build(
        cls,
        inputs: Sequence[InputSpec],
        keys: Sequence[tuple[str, ...]],
        event_times: Sequence[str | None],
        window: FixedWindow | None,
        how: str = JoinType.INNER,
        late: str = DROP,
    ) -> "WindowedJoin":
        """Check and plan the operator; raises `InvalidPipelineError`. The keys are compared in pairs.

        `inputs` have all columns of the two inputs, `pipeline.inputs` those that `on_rows` reads, or all if late rows
        are kept.
        """
        if window is not None:
            window = join_checks.window_of_join(window)
        type_, sides = join_checks.checked_sides(inputs, keys, event_times, how, late)
        added = () if window is None else (WINDOW_START, WINDOW_END)
        left, right = (WindowState(side, type_) for side in sides)
        join_checks.check_names(sides, type_, added, state=left.columns)
        # A row without an event time is in no window.
        nullable = any(type_.keeps_unmatched(number) for number in (LEFT, RIGHT))
        time = left.side.schema.field(left.side.time).type
        output = output_of(*sides, type_, [pa.field(name, time, nullable) for name in added])
        join_checks.check_output(output.schema)
        options = {"window": None if window is None else window_as_json(window), "how": str(type_)}
        pipeline = pipeline_of(NAME, inputs, sides, options, (*left.specs, *right.specs), output, late)
        return cls(pipeline, type_, output, window, (left, right))

    @classmethod
    def from_pipeline(cls, pipeline: Pipeline) -> "WindowedJoin":
        """The same operator from its fingerprint."""
        options: dict[str, Any] = pipeline.parameters
        spelled, keys, times = options["window"], keys_of_inputs(pipeline), options["event_times"]
        window = None if spelled is None else join_checks.window_of_join(window_from_json(spelled))
        return cls.build(pipeline.inputs, keys, times, window, options["how"], options["late"])

    @property
    def horizon_us(self) -> int:
        return self._windows.size_us

    @property
    def origins(self) -> Origins:
        return {**super().origins, **bound_origins(self.pipeline)}

    def on_rows(self, number: int, hashes: Hashes, rows: pa.Table, state: State, context: EpochContext) -> Positions:
        kept = self.states[number]
        open_ = OpenWindows(self._windows, context.watermark_us)
        late = open_.late(rows, kept.side)
        wanted = kept.side.usable(rows, self.how, late)
        timed = no_nulls(rows, (kept.side.time,))
        if not timed.all():
            at = np.flatnonzero(wanted & ~timed)
            if len(at):
                kept.put_timeless(hashes[at], take(rows, at), state, context)
            wanted &= timed
        if not wanted.all():
            hashes, rows = hashes[wanted], take(rows, np.flatnonzero(wanted))
        if rows.num_rows:
            kept.put(hashes, rows, open_, state, context)
        return late

    def finish(self, state: State, context: EpochContext) -> Iterator[Changes]:
        pieces = OutputPieces(self.output.schema, context.memory_bytes // 2)
        for number, kept in enumerate(self.states):
            for rows in kept.timeless(state):
                yield from pieces.add(self.emit_unmatched(number, self._in_no_window(rows), context))
            kept.expire_timeless(state)
        if context.watermark_us is not None:
            until_us = context.watermark_us - self._windows.size_us + 1
            timelines, specs = [kept.timeline(state) for kept in self.states], [kept.spec for kept in self.states]
            for lefts, rights in due_together(timelines, specs, until_us, context.memory_bytes // 4):
                for result in self._join(self._in_windows(lefts), self._in_windows(rights), context):
                    yield from pieces.add(result)
            for timeline in timelines:
                timeline.expire(until_us)
        yield from pieces.rest()

    @property
    def _windows(self) -> FixedWindow:
        return _INSTANT if self.window is None else self.window

    def _join(self, lefts: pa.Table, rights: pa.Table, context: EpochContext) -> Iterator[pa.Table]:
        """The results of some windows and keys, given all their rows."""
        matches = self._matches(lefts, rights)
        if self.how.gives_pairs:
            most = pairs_at_once(lefts, rights, context.memory_bytes // 2)
            for left_at, right_at in matches.pairs(most):
                context.counters[PAIRS] += len(left_at)
                yield self.output.pairs(lefts, left_at, rights, right_at)
        if self.how is JoinType.SEMI:
            yield self.output.alone(LEFT, take(lefts, np.flatnonzero(matches.has_match)))
        if self.how.keeps_unmatched(LEFT):
            yield self.emit_unmatched(LEFT, take(lefts, np.flatnonzero(~matches.has_match)), context)
        if self.how.keeps_unmatched(RIGHT):
            alone = np.ones(rights.num_rows, dtype=np.bool_)
            alone[matches.partners_matched] = False
            yield self.emit_unmatched(RIGHT, take(rights, np.flatnonzero(alone)), context)

    def _matches(self, lefts: pa.Table, rights: pa.Table) -> Matches:
        """The matches of each left row: the right rows with its key and window."""
        both, sides = (lefts, rights), [kept.side for kept in self.states]
        columns = [
            [flat(rows.column(name)) for name in (START, *side.keys)] for rows, side in zip(both, sides, strict=True)
        ]
        keys = [concat(pair) for pair in zip(*columns, strict=True)]
        hashes = np.concatenate([hashes_in(rows) for rows in both])
        table = pa.Table.from_arrays(keys, names=[str(place) for place in range(len(keys))])
        matchable = no_nulls(lefts, self.states[LEFT].side.keys)
        return of_equal_keys(subkey_hashes(hashes, keys[:1]), table, lefts.num_rows, matchable)

    def _in_windows(self, rows: pa.Table) -> pa.Table:
        """The rows with the bounds of their windows."""
        if self.window is None:
            return rows
        starts = flat(rows.column(START))
        ends = pa.array(starts.view(pa.int64()).to_numpy() + self.window.size_us).view(starts.type)
        return rows.append_column(WINDOW_START, starts).append_column(WINDOW_END, ends)

    def _in_no_window(self, rows: pa.Table) -> pa.Table:
        if self.window is None:
            return rows
        nothing = pa.nulls(rows.num_rows, self.output.schema.field(WINDOW_START).type)
        return rows.append_column(WINDOW_START, nothing).append_column(WINDOW_END, nothing)
