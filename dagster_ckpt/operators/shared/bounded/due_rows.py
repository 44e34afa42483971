"""The due rows of several timelines, together: one time range that fits into memory after another.

A single moment that does not fit is split by key hash.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dagster_ckpt.hash_range import HASH_MAX, HashRange
from dagster_ckpt.lsm.columns import Positions, flat, stack, take
from dagster_ckpt.lsm.table import Hashes, Timeline
from dagster_ckpt.operators.shared.state_columns import hashes_in, micros
from dagster_ckpt.protocol.manifest.manifest import StateTableSpec

Stretch = tuple[int | None, int]
"""A half-open time range in microseconds; None: from the first row."""

_CELL_BITS = 16
"""A hash range is counted in 2**16 cells: 1.5 MB, and enough to split rows thousands of times over the limit."""
_OFFSET_BYTES = 8
_OF_ANY_LENGTH = (pa.types.is_string, pa.types.is_binary, pa.types.is_large_string, pa.types.is_large_binary)
Weights = npt.NDArray[np.float64]
"""The approximate bytes of each row, or of all rows of each cell."""
Scan = Callable[[], Iterator[pa.Table]]
"""Returns all rows from the beginning, in pieces, at each call."""


@dataclass(frozen=True)
class _Read:
    """Rows of one timeline, and whether they are all rows of the range."""

    rows: pa.Table
    complete: bool


def due_together(
    timelines: Sequence[Timeline], specs: Sequence[StateTableSpec], until_us: int, bytes_max: int
) -> Iterator[list[pa.Table]]:
    """The rows of several timelines before a moment. All rows of one time and key come together, the times ascending.

    Each part has about `bytes_max` bytes of each timeline. If a single time has more, its rows come by ranges of their
    key hashes (the column `HASH`): about `bytes_max` bytes in all, or the rows of one hash. A timeline is read again
    when a range turns out to be too long, so do not put or delete rows before `until_us` until the end; later rows you
    may change after each part.
    """
    waiting: list[Stretch] = [(None, until_us)]
    while waiting:
        stretch = waiting.pop()
        read = [_read(timeline, spec, stretch, bytes_max) for timeline, spec in zip(timelines, specs, strict=True)]
        if all(each.complete for each in read):
            yield [each.rows for each in read]
            continue
        times = np.concatenate([_times(each.rows, spec) for each, spec in zip(read, specs, strict=True)])
        del read  # the parts are read again
        shorter = _shorter(stretch, times)
        if shorter == [stretch]:
            yield from _in_parts(timelines, specs, stretch, bytes_max)
        else:
            waiting.extend(reversed(shorter))


def _in_parts(
    timelines: Sequence[Timeline], specs: Sequence[StateTableSpec], stretch: Stretch, bytes_max: int
) -> Iterator[list[pa.Table]]:
    """The rows of a time range, by ranges of key hashes. Each scans the timelines again."""

    def scan() -> Iterator[pa.Table]:
        for timeline in timelines:
            yield from timeline.scan(*stretch)

    for part in hash_ranges(scan, bytes_max):
        yield [_read_part(timeline, spec, stretch, part) for timeline, spec in zip(timelines, specs, strict=True)]


def _read_part(timeline: Timeline, spec: StateTableSpec, stretch: Stretch, part: HashRange) -> pa.Table:
    """The rows of the time range whose key hashes are in the hash range."""
    found = ((piece, rows_within(piece, part)) for piece in timeline.scan(*stretch))
    return stack([spec.schema.empty_table(), *(take(piece, mine) for piece, mine in found if len(mine))])


def _read(timeline: Timeline, spec: StateTableSpec, stretch: Stretch, bytes_max: int) -> _Read:
    """The rows of the time range, or the first of them if all are too many bytes."""
    pieces, held = [spec.schema.empty_table()], 0
    for piece in timeline.scan(*stretch):
        if held > bytes_max:
            return _Read(stack(pieces), complete=False)
        pieces.append(piece)
        held += piece.nbytes
    return _Read(stack(pieces), complete=True)


def _times(rows: pa.Table, spec: StateTableSpec) -> Positions:
    assert spec.time is not None, "a timeline has a time"
    return micros(rows.column(spec.time))


def _shorter(stretch: Stretch, times: Positions) -> list[Stretch]:
    """The time range, split at about the median of these times; unchanged if it is a single moment."""
    since, until = stretch
    least, greatest = int(times.min()), int(times.max())
    if least < greatest:
        middle = int(np.partition(times, len(times) // 2)[len(times) // 2])
        if middle == least:
            middle = int(times[times > least].min())
        return [(since, middle), (middle, until)]
    cut: list[Stretch] = [(since, least), (least, least + 1), (least + 1, until)]
    if since is not None and since >= least:
        cut = cut[1:]
    return cut if least + 1 < until else cut[:-1]


@dataclass(frozen=True)
class _Cells:
    """The non-empty cells of a hash range, ascending, with the least and the greatest hash in each."""

    weights: Weights
    least: Hashes
    greatest: Hashes

    def join_cells(self, bytes_max: int) -> Iterator[tuple[float, HashRange]]:
        """Adjacent cells, joined up to `bytes_max` bytes, at least one at a time; each range with its bytes."""
        until = np.cumsum(self.weights)
        first, before = 0, 0.0
        while first < len(until):
            end = max(first + 1, int(np.searchsorted(until, before + bytes_max, side="right")))
            yield until[end - 1] - before, HashRange(int(self.least[first]), int(self.greatest[end - 1]))
            first, before = end, until[end - 1]


def hash_ranges(scan: Scan, bytes_max: int) -> Iterator[HashRange]:
    """Disjoint ranges of key hashes that cover all rows of a scan, each with at most about `bytes_max` bytes of rows.

    Only a single hash may have more. The rows have the column `HASH`. One scan counts them without holding any, and
    another one for each cell that has too many.
    """
    waiting = [HashRange()]
    while waiting:
        for weight, part in _count_cells(scan(), waiting.pop()).join_cells(bytes_max):
            if weight > bytes_max and part.lo < part.hi:
                waiting.append(part)
            else:
                yield part


def rows_within(rows: pa.Table, part: HashRange) -> Positions:
    """Which rows have a key hash in this range, ascending."""
    return _within(hashes_in(rows), part)


def row_weights(rows: pa.Table) -> Weights:
    """The approximate bytes of each row: strings count by their length, other types by the column's mean."""
    weights = np.zeros(rows.num_rows, dtype=np.float64)
    for column in map(flat, rows.columns) if rows.num_rows else ():
        if any(is_kind(column.type) for is_kind in _OF_ANY_LENGTH):
            weights += _OFFSET_BYTES + pc.fill_null(pc.binary_length(column), 0).to_numpy()
        else:
            weights += column.nbytes / len(column)
    return weights


def _count_cells(pieces: Iterator[pa.Table], within: HashRange) -> _Cells:
    """The bytes of the rows in a hash range, by cell."""
    shift = max(0, (within.hi - within.lo).bit_length() - _CELL_BITS)
    cells = ((within.hi - within.lo) >> shift) + 1
    weights = np.zeros(cells, dtype=np.float64)
    least, greatest = np.full(cells, HASH_MAX, dtype=np.uint64), np.zeros(cells, dtype=np.uint64)
    for piece in pieces:
        hashes = hashes_in(piece)
        mine = _within(hashes, within)
        hashes = hashes[mine]
        cell = ((hashes - np.uint64(within.lo)) >> np.uint64(shift)).astype(np.int64)
        weights += np.bincount(cell, weights=row_weights(piece)[mine], minlength=cells)
        np.minimum.at(least, cell, hashes)
        np.maximum.at(greatest, cell, hashes)
    filled = np.flatnonzero(least <= greatest)
    return _Cells(weights[filled], least[filled], greatest[filled])


def _within(hashes: Hashes, part: HashRange) -> Positions:
    found: Positions = np.flatnonzero((hashes >= np.uint64(part.lo)) & (hashes <= np.uint64(part.hi)))
    return found
