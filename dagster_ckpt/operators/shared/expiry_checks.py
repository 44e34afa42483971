"""What a step with a time to live may be: see also `pipeline_checks`."""

import pyarrow as pa

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.operators.shared.checks import pipeline_checks
from dagster_ckpt.operators.shared.late_rows import DROP, check_late

_LENGTH_MAX_US = 2**62


def check_event_time_for(step: str, event_time: str | None, schema: pa.Schema) -> str:
    """The event-time column; it must be there, and be a timestamp of microseconds."""
    if event_time is None:
        raise InvalidPipelineError(
            f"{step} needs event time: call with_watermark(column, delay) before it. step={step}, event_time=None"
        )
    pipeline_checks.check_event_time(event_time, schema)
    return event_time


def check_expiry(step: str, expire_after_us: int | None, late: str, event_time: str | None, schema: pa.Schema) -> None:
    """A time to live is a duration of event time; `late` applies only with one."""
    if expire_after_us is None:
        if late != DROP:
            raise InvalidPipelineError(
                f"without expire_after no row is ever too late: leave late= out. step={step}, late={late!r}"
            )
        return
    check_event_time_for(f"{step} with expire_after", event_time, schema)
    if not 0 < expire_after_us < _LENGTH_MAX_US:
        raise InvalidPipelineError(
            f"expire_after must be a length of time above zero. step={step}, expire_after_us={expire_after_us}"
        )
    check_late(late, schema)


def check_names_are_free(schema: pa.Schema, added: list[str]) -> None:
    """No column has the name of a column that the state adds."""
    for name in schema.names:
        if name in added:
            raise InvalidPipelineError(f"the state has a column of this name: rename yours. column={name}")
