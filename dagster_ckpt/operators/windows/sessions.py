"""Which rows, and which spans of rows, form one session; vectorised over many keys."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dagster_ckpt.lsm.columns import Mask, Positions, concat, take_array
from dagster_ckpt.operators.aggregates.grouped_state import GroupedState
from dagster_ckpt.operators.aggregates.kinds.accumulator import Columns


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
