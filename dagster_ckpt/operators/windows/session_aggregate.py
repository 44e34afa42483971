"""The aggregate over sessions: one row per key and session."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa

from dagster_ckpt.lsm.columns import Mask, Positions, concat, flat, take, take_array
from dagster_ckpt.lsm.runs.key_order import key_order
from dagster_ckpt.lsm.table import FoundAll, Hashes, State
from dagster_ckpt.operators.aggregates.grouped_state import GroupedState
from dagster_ckpt.operators.aggregates.kinds.accumulator import Columns
from dagster_ckpt.operators.operator import Changes, EpochContext
from dagster_ckpt.operators.shared.checks import window_checks
from dagster_ckpt.operators.shared.state_columns import micros
from dagster_ckpt.operators.shared.window_kinds import WINDOW_END, WINDOW_START, Session
from dagster_ckpt.operators.windows.session_state import (
    Replaced,
    SessionState,
    SessionsUntilClosed,
    SessionsWithEarlyResults,
)
from dagster_ckpt.operators.windows.windowed_state import (
    WINDOWS_CLOSED,
    WINDOWS_OPENED,
    WindowedOperator,
    WindowedState,
    WindowOptions,
    rows_at,
    times_of,
)
from dagster_ckpt.protocol.manifest.manifest import InputSpec

NAME = "session"
WINDOWS_MERGED = "windows_merged"
"""Sessions merged into one that begins earlier. Opened minus merged minus closed is the number of open sessions."""
COUNTERS = (WINDOWS_OPENED, WINDOWS_MERGED, WINDOWS_CLOSED)


@dataclass(frozen=True)
class Spans:
    """n spans of rows without a gap: the number of the key, and the times of the first and last row."""

    keys: Positions
    firsts: Positions
    lasts: Positions

    def __len__(self) -> int:
        return len(self.keys)

    def at(self, positions: Positions) -> "Spans":
        """The spans at these positions."""
        return Spans(self.keys[positions], self.firsts[positions], self.lasts[positions])

    def then(self, others: "Spans") -> "Spans":
        """These spans, then the others."""
        pairs = ((self.keys, others.keys), (self.firsts, others.firsts), (self.lasts, others.lasts))
        return Spans(*(np.concatenate(pair) for pair in pairs))


@dataclass(frozen=True)
class MergedSpans:
    """Merged spans: span g consists of the parts `order[starts[g]]` up to the next start."""

    order: Positions
    starts: Positions
    spans: Spans

    @property
    def sizes(self) -> Positions:
        """The number of parts of each span."""
        return np.diff(self.starts, append=len(self.order))

    @property
    def span_of_part(self) -> Positions:
        """The span of each part, in the parts' order."""
        return np.repeat(np.arange(len(self.starts)), self.sizes)

    def only(self, wanted: Mask) -> "MergedSpans":
        """Some of the spans, with their parts."""
        parts = self.order[np.repeat(wanted, self.sizes)]
        sizes = self.sizes[wanted]
        return MergedSpans(parts, np.cumsum(sizes) - sizes, self.spans.at(np.flatnonzero(wanted)))


def spans_of_rows(keys: Positions, times: Positions, gap_us: int) -> tuple[Positions, Spans]:
    """Where sessions begin among n >= 1 rows sorted by key and time, and the sessions."""
    starts = np.flatnonzero(_begins(keys, times[:-1], times[1:], gap_us))
    ends = np.append(starts[1:], len(times)) - 1
    return starts, Spans(keys[starts], times[starts], times[ends])


def merged_spans(parts: Spans, gap_us: int) -> MergedSpans:
    """Merge the parts of a key that are no more than a gap apart; at least one part."""
    order = np.lexsort((parts.firsts, parts.keys))
    sorted_ = parts.at(order)
    furthest = _furthest(sorted_)
    starts = np.flatnonzero(_begins(sorted_.keys, furthest[:-1], sorted_.firsts[1:], gap_us))
    ends = np.append(starts[1:], len(order)) - 1
    return MergedSpans(order, starts, Spans(sorted_.keys[starts], sorted_.firsts[starts], furthest[ends]))


def fold(grouped: GroupedState, parts: Columns, starts: Positions) -> dict[str, pa.Array]:
    """The state columns of groups from those of their parts: n parts, group after group, as in `GroupedRows`.

    Adjacent parts are merged in pairs, until each group has one part left.
    """
    columns = dict(parts)
    sizes = np.diff(starts, append=len(next(iter(columns.values()))))
    while sizes.max(initial=1) > 1:
        place = np.arange(int(sizes.sum())) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        even = place % 2 == 0
        paired = even & (place < np.repeat(sizes, sizes) - 1)
        left, alone = np.flatnonzero(paired), np.flatnonzero(even & ~paired)
        pairs = grouped.merge(_at(columns, left), _at(columns, left + 1))
        back = np.argsort(np.concatenate([left, alone]))
        columns = {
            name: take_array(concat([pairs[name], column]), back) for name, column in _at(columns, alone).items()
        }
        sizes = (sizes + 1) // 2
    return columns


def _begins(keys: Positions, before: Positions, times: Positions, gap_us: int) -> Mask:
    """Where a session begins: at a new key, and at a time more than a gap after the previous time."""
    begins = np.ones(len(keys), dtype=np.bool_)
    later = times > before
    # Unsigned, because the difference of two times may overflow a signed number.
    apart = (times.view(np.uint64) - before.view(np.uint64)) > np.uint64(gap_us)
    begins[1:] = (keys[1:] != keys[:-1]) | (later & apart)
    return begins


def _furthest(spans: Spans) -> Positions:
    """For spans sorted by key and first time, the greatest last time up to each span, within its key."""
    by_last = np.argsort(spans.lasts, kind="stable")
    rank = np.empty(len(spans), dtype=np.int64)
    rank[by_last] = np.arange(len(spans))
    number = np.cumsum(np.append(0, spans.keys[1:] != spans.keys[:-1])) * len(spans)
    # A later key's ranks are all greater, so one running maximum serves all keys.
    furthest: Positions = spans.lasts[by_last[np.maximum.accumulate(number + rank) - number]]
    return furthest


def _at(columns: Columns, positions: Positions) -> dict[str, pa.Array]:
    return {name: take_array(column, positions) for name, column in columns.items()}


@dataclass(frozen=True)
class SessionAggregate(WindowedOperator):
    """One row per key and session with the aggregates over the rows in it.

    A session ends a gap after its last row, but a row exactly at its end still joins it. So it is closed when the
    watermark has passed its end; then its row is emitted, once, and its state is dropped. With early results it is in
    the table from its first row on, changes with each epoch, and stays. Sessions that touch, or are bridged by a row,
    are merged. A row is late if a session of it alone would end at or before the watermark, or if it has no event time.
    """

    window: Session
    kept: SessionState

    checked = staticmethod(window_checks.session_window)

    @classmethod
    def of_options(cls, options: WindowOptions, windowed: WindowedState, source: InputSpec) -> Self:
        window = window_checks.session_window(options.window)
        kept: SessionState = SessionsWithEarlyResults(windowed) if options.early else SessionsUntilClosed(windowed)
        return cls(windowed.pipeline(NAME, options, source, kept.tables()), options, windowed, window, kept)

    @property
    def horizon_us(self) -> int:
        return self.window.gap_us + 1

    def on_rows(self, number: int, hashes: Hashes, rows: pa.Table, state: State, context: EpochContext) -> Positions:
        times, usable = times_of(rows.column(self.options.event_time))
        if context.watermark_us is not None:
            usable = usable & (times > context.watermark_us - self.window.gap_us)
        at = np.flatnonzero(usable)
        if len(at):
            self._take_in(hashes, rows, times, at, state, context)
        return np.flatnonzero(~usable)

    def _take_in(
        self, hashes: Hashes, rows: pa.Table, times: Positions, at: Positions, state: State, context: EpochContext
    ) -> None:
        """Find the sessions among the rows at these positions, and merge them with the open ones."""
        every = rows_at(rows.select(list(self.pipeline.keys)), at)
        groups = key_order(hashes[at], every)
        key_of_row = np.repeat(np.arange(len(groups.starts)), groups.sizes)
        order = _by_time(at[groups.order], key_of_row, times)
        starts, of_rows = spans_of_rows(key_of_row, times[order], self.window.gap_us)
        fresh = self.windowed.grouped.of_rows(rows, order, starts)
        first = groups.order[groups.starts]
        key_hashes, keys = hashes[at[first]], take(every, first)
        found = self.kept.open_sessions(key_hashes, keys, state, context.watermark_us)
        there = self._spans(found)
        together = merged_spans(there.then(of_rows), self.window.gap_us)
        # Sessions without new rows are unchanged.
        together = together.only(np.logical_or.reduceat(together.order >= len(there), together.starts))
        parts = {
            name: take_array(concat([flat(found.rows.column(name)), column]), together.order)
            for name, column in fresh.items()
        }
        columns = fold(self.windowed.grouped, parts, together.starts)
        windows = self.windowed.windows_of(take(keys, together.spans.keys), together.spans.firsts)
        state_rows = self.windowed.state_rows(windows, together.spans.lasts + self.window.gap_us, columns)
        replaced = self._replace(found, there, together, key_hashes, state_rows)
        context.counters[WINDOWS_OPENED] += len(replaced.opened)
        context.counters[WINDOWS_MERGED] += replaced.gone.num_rows
        self.kept.replace(replaced, state)

    def _spans(self, found: FoundAll) -> Spans:
        """The spans of sessions; their keys are numbered as in the look-up."""
        firsts, ends = (micros(found.rows.column(name)) for name in (WINDOW_START, WINDOW_END))
        return Spans(found.asked, firsts, ends - self.window.gap_us)

    def _replace(
        self, found: FoundAll, there: Spans, together: MergedSpans, key_hashes: Hashes, state_rows: pa.Table
    ) -> Replaced:
        """How the open sessions changed: each one grew, or was merged into another."""
        is_there = together.order < len(there)
        old, span = together.order[is_there], together.span_of_part[is_there]
        stays = there.firsts[old] == together.spans.firsts[span]
        opened = np.ones(state_rows.num_rows, dtype=np.bool_)
        opened[span[stays]] = False
        gone = old[~stays]
        return Replaced(
            gone_hashes=key_hashes[there.keys[gone]],
            gone=take(found.rows.select(self.windowed.key_names), gone),
            hashes=key_hashes[together.spans.keys],
            rows=state_rows,
            opened=np.flatnonzero(opened),
        )

    def finish(self, state: State, context: EpochContext) -> Iterator[Changes]:
        return self.kept.finish(state, context)


def _by_time(rows: Positions, key_of_row: Positions, times: Positions) -> Positions:
    """The rows, which are sorted by key, also by time within each key."""
    theirs = times[rows]
    if ((theirs[1:] >= theirs[:-1]) | (key_of_row[1:] != key_of_row[:-1])).all():
        return rows
    return rows[np.lexsort((theirs, key_of_row))]
