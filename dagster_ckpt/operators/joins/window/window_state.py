"""The state of one input of a window join: its rows by window, once for each open window they are in."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dagster_ckpt.lsm.columns import Positions, from_plain, take
from dagster_ckpt.lsm.table import Hashes, State, Timeline
from dagster_ckpt.operators.joins.arrivals import ARRIVED, MOMENT
from dagster_ckpt.operators.joins.join_types import JoinType
from dagster_ckpt.operators.joins.sides import Side, no_nulls, shape_rows
from dagster_ckpt.operators.operator import EpochContext
from dagster_ckpt.operators.shared.event_time_range import out_of_range
from dagster_ckpt.operators.shared.state_columns import HASH, ROW, hash_column, whole_number
from dagster_ckpt.operators.shared.window_kinds import Assigned, FixedWindow, are_open
from dagster_ckpt.protocol.manifest.manifest import SortKind, StateTableSpec

START = "_start"
"""The start of a row's window."""

_ROWS_MAX = 1 << 20
"""The rows to put at once; a row counts once for each window it is in."""


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
