"""Rows that came too late: which they are, and the state table in which a stream keeps them where it is told to."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dagster_ckpt.lsm.columns import Positions, flat, mask_of, take
from dagster_ckpt.lsm.table import Hashes, Timeline
from dagster_ckpt.operators.operator import NONE_LATE, EpochContext
from dagster_ckpt.protocol.manifest import InputSpec, SortKind, StateTableSpec

ROW = "_row"
"""Tells late rows apart that are equal in every column."""

_PREFIX = "_late_"


def late_table(number: int) -> str:
    """The name of the state table with the late rows of an input."""
    return f"{_PREFIX}{number}"


def is_late_table(name: str) -> bool:
    return name.startswith(_PREFIX)


def late_tables(inputs: Sequence[InputSpec], event_times: Sequence[str | None]) -> tuple[StateTableSpec, ...]:
    """A timeline for the late rows of each input that has an event time. They never expire."""
    return tuple(
        StateTableSpec(
            late_table(number),
            pa.schema([*source.schema, pa.field(ROW, pa.int64(), nullable=False)]),
            keys=(time, ROW),
            sort=SortKind.TIME,
            time=time,
        )
        for number, (source, time) in enumerate(zip(inputs, event_times, strict=True))
        if time is not None
    )


def keep_late(
    timeline: Timeline, hashes: Hashes, rows: pa.Table, late: Positions, time: str, context: EpochContext
) -> None:
    """Keep the late ones of these rows in their table. One without an event time has no place there."""
    late = late[mask_of(pc.is_valid(flat(rows.column(time)).take(pa.array(late))))]
    if len(late):
        numbers = context.row_numbers(len(late))
        kept = take(rows, late).append_column(pa.field(ROW, pa.int64(), nullable=False), numbers)
        timeline.put(hashes[late], kept)


def before(times: pa.Array, until_us: int | None) -> Positions:
    """Which of these event times lie before a moment (None: none does), ascending. A row without one is never late."""
    if until_us is None:
        return NONE_LATE
    found: Positions = np.flatnonzero(mask_of(pc.fill_null(pc.less(times.view(pa.int64()), until_us), False)))
    return found
