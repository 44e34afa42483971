"""A call of the user's code: what it returns is checked, and what it raises is told with its place."""

from collections.abc import Callable
from types import TracebackType

import pyarrow as pa

from dagster_ckpt.errors import CheckpointDeclinedError, CheckpointError
from dagster_ckpt.operators.process.given import of_schema


def called(call: Callable[[], object], output: pa.Schema, where: str) -> pa.Table | None:
    """What the call returns: a table of `output`, or nothing. `where` names the method, at the end of each message.

    Raises `InvalidPipelineError` for what is no such table, `CheckpointDeclinedError` for an error that is not ours.
    """
    try:
        made = call()
    except CheckpointError:
        raise
    except Exception as error:
        raise CheckpointDeclinedError(
            "the process function raised an error: mend it, or the rows that it cannot take. Nothing of the epoch is "
            f"committed, and nothing is lost. {where}{_line(error.__traceback__)}, "
            f"error={type(error).__name__}: {error}"
        ) from error
    return None if made is None else of_schema(made, output, where)


def _line(trace: TracebackType | None) -> str:
    """Where in the user's method it was raised: below this module's frame, and that of the call."""
    inner = trace.tb_next.tb_next if trace is not None and trace.tb_next is not None else None
    return "" if inner is None else f", line={inner.tb_lineno}"
