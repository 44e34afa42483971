"""The state of one input of an interval join: its rows by key and bucket, and its unmatched rows by time."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dagster_ckpt.lsm.columns import Mask, Positions, take
from dagster_ckpt.lsm.table import Hashes, State, StateTable
from dagster_ckpt.operators.joins.arrivals import BUCKET, arrivals_spec
from dagster_ckpt.operators.joins.join_types import JoinType
from dagster_ckpt.operators.joins.sides import Side, shape_rows
from dagster_ckpt.operators.shared.state_columns import HASH, ROW, hash_column, whole_number
from dagster_ckpt.protocol.manifest.manifest import SortKind, StateTableSpec


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
