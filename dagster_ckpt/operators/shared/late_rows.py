"""Late rows, and the state table in which a stream keeps them with `late='keep'`."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.lsm.columns import Positions, flat, take, to_mask
from dagster_ckpt.lsm.table import Hashes, Timeline
from dagster_ckpt.operators.operator import NONE_LATE, EpochContext
from dagster_ckpt.operators.shared.checks import pipeline_checks
from dagster_ckpt.operators.shared.state_columns import HASH, ROW, hash_column, whole_number
from dagster_ckpt.protocol.manifest.manifest import InputSpec, Pipeline, SortKind, StateTableSpec

DROP = "drop"
KEEP = "keep"

LATE_AT = "_late_at"
"""The time of a late row in its timeline: its event time, or the Unix epoch if it has none."""

_PREFIX = "_late_"


def late_table(number: int) -> str:
    """The name of the state table of the late rows of an input."""
    return f"{_PREFIX}{number}"


def stored_late_tables(pipeline: Pipeline) -> tuple[str | None, ...]:
    """The name in `Manifest.runs` of the late rows of each of `input_places`; None where they are not kept."""
    there = {spec.name for spec in pipeline.all_tables}
    names = [pipeline.name_in_runs(step, late_table(number)) for step, number in pipeline.input_places]
    return tuple(name if name in there else None for name in names)


def is_late_table(name: str) -> bool:
    return name.startswith(_PREFIX)


def check_late(late: str, schema: pa.Schema) -> None:
    """`late` is valid, and where late rows are kept, all columns of the input can be stored.

    Raises `InvalidPipelineError`.
    """
    if late not in (DROP, KEEP):
        raise InvalidPipelineError(f"late rows can be dropped or kept: late='drop' or late='keep'. late={late!r}")
    if late == KEEP:
        pipeline_checks.check_columns(schema)
        for name in (ROW, HASH, LATE_AT):
            if name in schema.names:
                raise InvalidPipelineError(
                    f"late rows are kept with a column of this name: rename yours. column={name}"
                )


def late_tables(
    late: str, inputs: Sequence[InputSpec], event_times: Sequence[str | None]
) -> tuple[StateTableSpec, ...]:
    """A timeline for the late rows of each input with an event time, if late rows are kept. They never expire."""
    if late != KEEP:
        return ()
    return tuple(
        StateTableSpec(
            late_table(number),
            pa.schema([*source.schema, whole_number(HASH), whole_number(ROW), _late_at(source.schema, time)]),
            keys=(LATE_AT, ROW),
            sort=SortKind.TIME,
            time=LATE_AT,
        )
        for number, (source, time) in enumerate(zip(inputs, event_times, strict=True))
        if time is not None
    )


def keep_late(
    timeline: Timeline, hashes: Hashes, rows: pa.Table, late: Positions, time: str, context: EpochContext
) -> None:
    """Put the late ones of these rows into their table."""
    kept = take(rows, late)
    at = pc.fill_null(flat(kept.column(time)).view(pa.int64()), 0)
    field = _late_at(rows.schema, time)
    kept = kept.append_column(whole_number(HASH), hash_column(hashes[late]))
    kept = kept.append_column(whole_number(ROW), context.row_numbers(len(late)))
    timeline.put(hashes[late], kept.append_column(field, at.view(field.type)))


def _late_at(schema: pa.Schema, time: str) -> pa.Field:
    return pa.field(LATE_AT, schema.field(time).type, nullable=False)


def before(times: pa.Array, until_us: int | None) -> Positions:
    """Positions of the event times before a moment (None: no row is), ascending. Null is never before it."""
    if until_us is None:
        return NONE_LATE
    found: Positions = np.flatnonzero(to_mask(pc.fill_null(pc.less(times.view(pa.int64()), until_us), False)))
    return found
