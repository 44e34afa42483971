"""The aggregate over tumbling and hopping windows: one row per key and window."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa

from dagster_ckpt.lsm.columns import Positions, take
from dagster_ckpt.lsm.runs.key_order import key_order
from dagster_ckpt.lsm.table import Hashes, State
from dagster_ckpt.operators.operator import Changes, EpochContext
from dagster_ckpt.operators.shared.bounded.lookups import Lookups
from dagster_ckpt.operators.shared.bounded.output_pieces import OutputPieces
from dagster_ckpt.operators.shared.checks import window_checks
from dagster_ckpt.operators.shared.subkeys import subkey_hashes
from dagster_ckpt.operators.shared.window_kinds import WINDOW_START, FixedWindow
from dagster_ckpt.operators.windows.windowed_state import (
    ENDS,
    WINDOWS,
    WINDOWS_CLOSED,
    WINDOWS_OPENED,
    WindowedOperator,
    WindowedState,
    WindowOptions,
    due,
    rows_at,
    windows_of_rows,
)
from dagster_ckpt.protocol.manifest.manifest import InputSpec

NAME = "window"
COUNTERS = (WINDOWS_OPENED, WINDOWS_CLOSED)


@dataclass(frozen=True)
class WindowAggregate(WindowedOperator):
    """One row per key and window with the aggregates over the rows in it.

    A window is closed when the watermark reaches its end. Then its row is emitted, once, and its state is dropped. With
    early results it is in the table from its first row on, changes with each epoch, and stays. A row counts in all its
    open windows. It is late if all are closed, or if it has no event time.
    """

    window: FixedWindow

    checked = staticmethod(window_checks.fixed_window)

    @classmethod
    def of_options(cls, options: WindowOptions, windowed: WindowedState, source: InputSpec) -> Self:
        early = options.early
        tables = [windowed.windows(expire=False)] if early else [windowed.windows(expire=True), windowed.ends()]
        window = window_checks.fixed_window(options.window)
        return cls(windowed.pipeline(NAME, options, source, tables), options, windowed, window)

    @property
    def horizon_us(self) -> int:
        return self.window.size_us

    def on_rows(self, number: int, hashes: Hashes, rows: pa.Table, state: State, context: EpochContext) -> Positions:
        used, times = np.zeros(rows.num_rows, dtype=np.bool_), rows.column(self.options.event_time)
        for at, starts in windows_of_rows(self.window, times, context.watermark_us):
            used[at] = True
            self._take_in(hashes, rows, at, starts, state, context)
        return np.flatnonzero(~used)

    def _take_in(
        self, hashes: Hashes, rows: pa.Table, at: Positions, starts: Positions, state: State, context: EpochContext
    ) -> None:
        """Aggregate the rows at `at`, each in the open window at `starts`, and merge them with the state."""
        every = self.windowed.windows_of(rows_at(rows.select(list(self.pipeline.keys)), at), starts)
        every_hash = subkey_hashes(hashes[at], [every.column(WINDOW_START)])
        groups = key_order(every_hash, every)
        first = groups.order[groups.starts]
        windows, window_hashes = take(every, first), every_hash[first]
        fresh = self.windowed.grouped.of_rows(rows, at[groups.order], groups.starts)
        table = state.table(WINDOWS)
        found = table.get(window_hashes, windows)
        kept = self.windowed.grouped.merge_with(found, fresh)
        state_rows = self.windowed.state_rows(windows, starts[first] + self.window.size_us, kept)
        table.put(window_hashes, state_rows, before=found)
        new = np.flatnonzero(~found.present)
        context.counters[WINDOWS_OPENED] += len(new)
        if len(new) and not self.options.early:
            key_hashes = hashes[at[first[new]]]
            state.timeline(ENDS).put(key_hashes, self.windowed.ends_of(key_hashes, rows_at(state_rows, new)))

    def finish(self, state: State, context: EpochContext) -> Iterator[Changes]:
        if self.options.early:
            yield from map(self.windowed.table.changes_of, state.table(WINDOWS).touched_keys())
        elif context.watermark_us is not None:
            yield from self._close_windows(state, context.watermark_us, context)

    def _close_windows(self, state: State, watermark_us: int, context: EpochContext) -> Iterator[Changes]:
        """Emit the windows whose end the watermark has reached, and drop them.

        The state of a window may be far larger than its entry in `ENDS`: so look up as many at once as fit into memory.
        """
        table, until_us = state.table(WINDOWS), watermark_us + 1
        lookups = Lookups(table, context.memory_bytes // 4)
        pieces = OutputPieces(self.windowed.output, context.memory_bytes // 2)
        for hashes, ends in due(state, until_us):
            windows = ends.select(self.windowed.key_names)
            for _, found in lookups.find(subkey_hashes(hashes, [windows.column(WINDOW_START)]), windows):
                assert found.present.all(), "a window exists as long as its entry in ENDS"
                context.counters[WINDOWS_CLOSED] += found.rows.num_rows
                yield from pieces.add(self.windowed.results(found.rows))
        yield from pieces.rest()
        table.expire(until_us)
        state.timeline(ENDS).expire(until_us)
