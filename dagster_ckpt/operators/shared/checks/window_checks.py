"""What an aggregate over windows may be, in addition to `pipeline_checks`."""

from collections.abc import Iterable

import pyarrow as pa

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.operators.shared.checks import pipeline_checks
from dagster_ckpt.operators.shared.window_kinds import FixedWindow, Hopping, Session, Tumbling


def fixed_window(window: object) -> FixedWindow:
    """The window, if it is a tumbling or a hopping one."""
    if not isinstance(window, Tumbling | Hopping):
        raise InvalidPipelineError(
            f"write a window as tumbling('5 minutes') or hopping('10 minutes', '5 minutes'). window={window!r}"
        )
    return window


def fixed_window_of_table(window: object) -> FixedWindow:
    """A fixed window over a table whose rows may be deleted. Raises `InvalidPipelineError` for a session."""
    if isinstance(window, Session):
        raise InvalidPipelineError(
            "the rows of a table come and go, and one that goes may split a session that has been emitted: use "
            f"tumbling or hopping windows, or sessions over a stream that only appends. window={window!r}"
        )
    return fixed_window(window)


def session_window(window: object) -> Session:
    """The window, if it is a session."""
    if not isinstance(window, Session):
        raise InvalidPipelineError(f"write a session window as session('30 minutes'). window={window!r}")
    return window


def time_of_window(event_time: str | None, schema: pa.Schema) -> str:
    """The event-time column; it must be there, and be a timestamp of microseconds."""
    if event_time is None:
        raise InvalidPipelineError(
            "a window needs event time: call with_watermark(column, delay) before it. event_time=None"
        )
    pipeline_checks.check_event_time(event_time, schema)
    return event_time


def check_window_names(names: Iterable[str], added: Iterable[str]) -> None:
    """No key or aggregate has the name of a column that windows add to the table or to their state."""
    taken = {name.casefold() for name in added}
    for name in names:
        if name.casefold() in taken:
            raise InvalidPipelineError(
                f"a window adds a column of this name itself: rename the key or aggregate. column={name}"
            )
