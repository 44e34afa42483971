"""Where sessions are kept: until they come out, or for good where there are early results."""

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
from dagster_ckpt.operators.shared.bounded.output_pieces import Pieces
from dagster_ckpt.operators.shared.state_columns import hashes_in, micros
from dagster_ckpt.operators.shared.subkeys import subkey_hashes
from dagster_ckpt.operators.shared.window_kinds import WINDOW_END, WINDOW_START
from dagster_ckpt.operators.windows.windowed_state import ENDS, WINDOWS, WINDOWS_CLOSED, WindowedState
from dagster_ckpt.protocol.manifest.manifest import StateTableSpec

OPEN = "open"
"""With early results: the bounds of the sessions that rows can still join."""


@dataclass(frozen=True)
class Replaced:
    """What rows made of sessions: `gone` (key columns of `WINDOWS`) became part of some of `rows` (whole ones).

    Hashes are the keys'. Those at `opened` begin where no session began.
    """

    gone_hashes: Hashes
    gone: pa.Table
    hashes: Hashes
    rows: pa.Table
    opened: Positions


class SessionState(Protocol):
    """The state tables of sessions, each of which has one row in `WINDOWS`. A session is open until it has ended."""

    def tables(self) -> list[StateTableSpec]:
        """The tables it needs."""
        ...

    def open_sessions(self, hashes: Hashes, keys: pa.Table, state: State, watermark_us: int | None) -> FoundAll:
        """The open sessions of n distinct keys: rows of `WINDOWS`."""
        ...

    def replace(self, replaced: Replaced, state: State) -> None:
        """Write down what became of sessions."""
        ...

    def finish(self, state: State, context: EpochContext) -> Iterator[Changes]:
        """What the epoch changed in the stream's table."""
        ...


@dataclass(frozen=True)
class SessionsUntilClosed:
    """Implements `SessionState`: a session comes out when it is closed, and is let go.

    A session enters `ENDS` once, when it is opened. What `ENDS` says may be true no more when the time has come: then
    the session has become longer, and is entered anew, or part of another.
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
        pieces = Pieces(self.windowed.output, context.memory_bytes // 2)
        for [ends] in due_together([timeline], [self.windowed.ends()], until_us, context.memory_bytes // 4):
            hashes = hashes_in(ends)
            for part, found in lookups.found(hashes, ends.select(self.windowed.key_names)):
                closed = micros(found.rows.column(WINDOW_END)) < until_us
                if not closed.all():
                    still = np.flatnonzero(~closed)
                    its_hashes = hashes[part][found.present][still]
                    longer = self.windowed.ends_of(its_hashes, take(found.rows, still))
                    timeline.put(its_hashes, longer)  # none is due itself, so what is scanned stays what it was
                    yield from pieces.count(longer.nbytes)
                if closed.any():
                    rows = take(found.rows, np.flatnonzero(closed))
                    context.counters[WINDOWS_CLOSED] += rows.num_rows
                    yield from pieces.add(self.windowed.table(rows))
        yield from pieces.rest()
        table.expire(until_us)
        timeline.expire(until_us)


@dataclass(frozen=True)
class SessionsForGood:
    """Implements `SessionState`: all sessions stay in the table, and a second one has those that are open.

    So a key's look-up does not meet all the sessions that it ever had.
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
        yield from map(self.windowed.changes_of, state.table(WINDOWS).touched())


def _only_open(found: FoundAll, watermark_us: int | None) -> FoundAll:
    """The sessions that a row can still join: also one that the watermark has just reached the end of."""
    if watermark_us is None:
        return found
    open_ = micros(found.rows.column(WINDOW_END)) >= watermark_us
    if open_.all():
        return found
    return FoundAll(found.asked[open_], take(found.rows, np.flatnonzero(open_)))


def _hashes_of(hashes: Hashes, windows: pa.Table) -> Hashes:
    return subkey_hashes(hashes, [windows.column(WINDOW_START)])
