"""A call of the user's code: what it returns is checked, and what it raises is told with its place."""

from collections.abc import Callable
from types import TracebackType

import pyarrow as pa

from dagster_ckpt.errors import CheckpointDeclinedError, CheckpointError
from dagster_ckpt.operators.process.user_state.call_keys import CallKeys
from dagster_ckpt.operators.process.user_state.user_tables import of_schema


def called(call: Callable[[], object], output: pa.Schema, keys: CallKeys, where: str) -> pa.Table:
    """What the call returns: a table of `output`, empty for None. `where` names the method, at the end of each message.

    `keys` are the call's: where `output` has all columns of a key, no other key may come out. Raises
    `InvalidPipelineError` for what is no such table, `CheckpointDeclinedError` for an error that is not ours.
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
    if made is None:
        return output.empty_table()
    rows = of_schema(made, output, where)
    if set(keys.rows.column_names) <= set(output.names):
        keys.check_output(rows, where)
    return rows


def _line(trace: TracebackType | None) -> str:
    """Where in the user's method it was raised: below this module's frame, and that of the call."""
    inner = trace.tb_next.tb_next if trace is not None and trace.tb_next is not None else None
    return "" if inner is None else f", line={inner.tb_lineno}"
