"""What is due in several timelines, together: a stretch of time that fits into memory, then the next."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dagster_ckpt.lsm.columns import Positions, stack
from dagster_ckpt.lsm.table import Timeline
from dagster_ckpt.operators.own_columns import micros
from dagster_ckpt.protocol.manifest import StateTableSpec

Stretch = tuple[int | None, int]
"""From a moment (None: from the first) until another, in microseconds."""


@dataclass(frozen=True)
class _Read:
    """Rows of one timeline, and whether they are all that was asked for."""

    rows: pa.Table
    complete: bool


def due_together(
    timelines: Sequence[Timeline], specs: Sequence[StateTableSpec], until_us: int, bytes_max: int
) -> Iterator[list[pa.Table]]:
    """The rows of several timelines before a moment. All rows of one time come together, the times ascending.

    What comes at once is about `bytes_max` bytes, or all of one time where that is more. A timeline is read again where
    a stretch turns out to be too long, so nothing may be put or deleted before the end.
    """
    waiting: list[Stretch] = [(None, until_us)]
    while waiting:
        stretch = waiting.pop()
        read = [_read(timeline, spec, stretch, bytes_max) for timeline, spec in zip(timelines, specs, strict=True)]
        if not all(each.complete for each in read):
            times = np.concatenate([_times(each.rows, spec) for each, spec in zip(read, specs, strict=True)])
            shorter = _shorter(stretch, times)
            if shorter != [stretch]:
                waiting.extend(reversed(shorter))
                continue
            read = [_read(timeline, spec, stretch, None) for timeline, spec in zip(timelines, specs, strict=True)]
        yield [each.rows for each in read]


def _read(timeline: Timeline, spec: StateTableSpec, stretch: Stretch, bytes_max: int | None) -> _Read:
    """The rows of the stretch, or the first of them where they are too many bytes."""
    pieces, held = [spec.schema.empty_table()], 0
    for piece in timeline.scan(*stretch):
        if bytes_max is not None and held > bytes_max:
            return _Read(stack(pieces), complete=False)
        pieces.append(piece)
        held += piece.nbytes
    return _Read(stack(pieces), complete=True)


def _times(rows: pa.Table, spec: StateTableSpec) -> Positions:
    assert spec.time is not None, "a timeline has a time"
    return micros(rows.column(spec.time))


def _shorter(stretch: Stretch, times: Positions) -> list[Stretch]:
    """The stretch, cut where about half of these of its times lie; as it is where it is one moment."""
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
