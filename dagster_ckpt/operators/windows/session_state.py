"""The state tables of sessions: until they are emitted, or forever with early results."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from dagster_ckpt.lsm.columns import Positions, take
from dagster_ckpt.lsm.table import FoundAll, Hashes, State
from dagster_ckpt.operators.operator import Changes, EpochContext
from dagster_ckpt.operators.shared.bounded.due_rows import due_together
from dagster_ckpt.operators.shared.bounded.lookups import Lookups
from dagster_ckpt.operators.shared.bounded.output_pieces import OutputPieces
from dagster_ckpt.operators.shared.state_columns import hashes_in, micros
from dagster_ckpt.operators.shared.subkeys import subkey_hashes
from dagster_ckpt.operators.shared.window_kinds import WINDOW_END, WINDOW_START
from dagster_ckpt.operators.windows.windowed_state import ENDS, WINDOWS, WINDOWS_CLOSED, WindowedState
from dagster_ckpt.protocol.manifest.manifest import StateTableSpec

OPEN = "open"
"""With early results: the bounds of the open sessions."""


@dataclass(frozen=True)
class Replaced:
    """Sessions changed by rows: `gone` (key columns of `WINDOWS`) were merged into some of `rows` (full rows).

    Hashes are those of the keys. The rows at `opened` have a start that no session had.
    """

    gone_hashes: Hashes
    gone: pa.Table
    hashes: Hashes
    rows: pa.Table
    opened: Positions


class SessionState(Protocol):
    """The state tables of sessions, each with one row in `WINDOWS`; one is open until the watermark passes its end."""

    def tables(self) -> list[StateTableSpec]:
        """The specs of the tables."""
        ...

    def open_sessions(self, hashes: Hashes, keys: pa.Table, state: State, watermark_us: int | None) -> FoundAll:
        """The open sessions of n distinct keys, as rows of `WINDOWS`."""
        ...

    def replace(self, replaced: Replaced, state: State) -> None:
        """Put changed sessions into the state."""
        ...

    def finish(self, state: State, context: EpochContext) -> Iterator[Changes]:
        """The changes of the epoch to the stream's table."""
        ...


@dataclass(frozen=True)
class SessionsUntilClosed:
    """Implements `SessionState`: a session is emitted and dropped when it is closed.

    A session has an entry in `ENDS` from the time it is opened. When that entry is due it may be stale: the session has
    become longer, and gets a new entry, or it has been merged into another one.
    """

    windowed: WindowedState

    def tables(self) -> list[StateTableSpec]:
        return [self.windowed.windows(expire=True), self.windowed.ends()]

    def open_sessions(self, hashes: Hashes, keys: pa.Table, state: State, watermark_us: int | None) -> FoundAll:
        return _only_open(state.table(WINDOWS).get_all(hashes, keys), watermark_us)

    def replace(self, replaced: Replaced, state: State) -> None:
        table, opened = state.table(WINDOWS), replaced.opened
        if replaced.gone.num_rows:
            table.delete(replaced.gone_hashes, replaced.gone)
        table.put(replaced.hashes, replaced.rows)
        if len(opened):
            hashes = replaced.hashes[opened]
            state.timeline(ENDS).put(hashes, self.windowed.ends_of(hashes, take(replaced.rows, opened)))

    def finish(self, state: State, context: EpochContext) -> Iterator[Changes]:
        until_us = context.watermark_us
        if until_us is None:
            return
        table, timeline = state.table(WINDOWS), state.timeline(ENDS)
        lookups = Lookups(table, context.memory_bytes // 4)
        pieces = OutputPieces(self.windowed.output, context.memory_bytes // 2)
        for [ends] in due_together([timeline], [self.windowed.ends()], until_us, context.memory_bytes // 4):
            hashes = hashes_in(ends)
            for part, found in lookups.find(hashes, ends.select(self.windowed.key_names)):
                closed = micros(found.rows.column(WINDOW_END)) < until_us
                if not closed.all():
                    still = np.flatnonzero(~closed)
                    its_hashes = hashes[part][found.present][still]
                    longer = self.windowed.ends_of(its_hashes, take(found.rows, still))
                    timeline.put(its_hashes, longer)  # none is due yet, so the scan is not affected
                    yield from pieces.count(longer.nbytes)
                if closed.any():
                    rows = take(found.rows, np.flatnonzero(closed))
                    context.counters[WINDOWS_CLOSED] += rows.num_rows
                    yield from pieces.add(self.windowed.results(rows))
        yield from pieces.rest()
        table.expire(until_us)
        timeline.expire(until_us)


@dataclass(frozen=True)
class SessionsWithEarlyResults:
    """Implements `SessionState`: all sessions stay in the table, and a second table has the open ones.

    So the look-up of a key does not read all the sessions that it ever had.
    """

    windowed: WindowedState

    def tables(self) -> list[StateTableSpec]:
        windows, names = self.windowed.windows(expire=False), self.windowed.key_names
        schema = pa.schema([windows.schema.field(name) for name in (*names, WINDOW_END)])
        return [windows, StateTableSpec(OPEN, schema, names, time=WINDOW_END)]

    def open_sessions(self, hashes: Hashes, keys: pa.Table, state: State, watermark_us: int | None) -> FoundAll:
        bounds = _only_open(state.table(OPEN).get_all(hashes, keys), watermark_us)
        windows = bounds.rows.select(self.windowed.key_names)
        found = state.table(WINDOWS).get(_hashes_of(hashes[bounds.asked], windows), windows)
        assert found.present.all(), "an open session is a session"
        return FoundAll(bounds.asked, found.rows)

    def replace(self, replaced: Replaced, state: State) -> None:
        table, open_ = state.table(WINDOWS), state.table(OPEN)
        if replaced.gone.num_rows:
            table.delete(_hashes_of(replaced.gone_hashes, replaced.gone), replaced.gone)
            open_.delete(replaced.gone_hashes, replaced.gone)
        table.put(_hashes_of(replaced.hashes, replaced.rows), replaced.rows)
        open_.put(replaced.hashes, replaced.rows.select([*self.windowed.key_names, WINDOW_END]))

    def finish(self, state: State, context: EpochContext) -> Iterator[Changes]:
        if context.watermark_us is not None:
            state.table(OPEN).expire(context.watermark_us)
        yield from map(self.windowed.table.changes_of, state.table(WINDOWS).touched_keys())


def _only_open(found: FoundAll, watermark_us: int | None) -> FoundAll:
    """The sessions that a row can still join, including one whose end the watermark has just reached."""
    if watermark_us is None:
        return found
    open_ = micros(found.rows.column(WINDOW_END)) >= watermark_us
    if open_.all():
        return found
    return FoundAll(found.asked[open_], take(found.rows, np.flatnonzero(open_)))


def _hashes_of(hashes: Hashes, windows: pa.Table) -> Hashes:
    return subkey_hashes(hashes, [windows.column(WINDOW_START)])
