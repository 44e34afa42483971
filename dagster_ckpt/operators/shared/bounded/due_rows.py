"""The due rows of several timelines, together: one time range that fits into memory after another.

A single moment that does not fit is split by key hash.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dagster_ckpt.hash_range import HashRange
from dagster_ckpt.lsm.columns import Positions, stack, take
from dagster_ckpt.lsm.table import Timeline
from dagster_ckpt.operators.shared.bounded.hash_ranges import hash_ranges, rows_within
from dagster_ckpt.operators.shared.state_columns import micros
from dagster_ckpt.protocol.manifest.manifest import StateTableSpec

Stretch = tuple[int | None, int]
"""A half-open time range in microseconds; None: from the first row."""


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
