"""A key that the user declares for a stream's table, where none follows from the stream, or another one does."""

from collections.abc import Sequence
from dataclasses import replace

from dagster_ckpt.errors import InvalidPipelineError, did_you_mean
from dagster_ckpt.operators.operator import Operator
from dagster_ckpt.operators.rows.materializer import Materializer
from dagster_ckpt.protocol.change_columns import CHANGE_TYPE
from dagster_ckpt.runtime.declared.step_parts import StepInput
from dagster_ckpt.runtime.declared.stream import StatefulStep, Stream, rows_of


def with_primary_key(stream: Stream, columns: Sequence[str]) -> Stream:
    """The stream whose table these columns identify the rows of; names as Spark finds them, in upper or lower case.

    What follows from the stream is not kept once more. What does not is checked at each epoch, and two rows of one key
    end the stream. No columns: the stream as it is.

    Raises `InvalidPipelineError` for a column that is not there, and for a table whose rows only come.
    """
    rows = rows_of(stream)
    if not columns or rows.keys:  # the latter is refused for its own reason
        return stream
    there = {name.casefold(): name for name in rows.frame.columns if name != CHANGE_TYPE}
    for name in columns:
        if name.casefold() not in there:
            raise InvalidPipelineError(
                f"the primary key has a column that the table has not.{did_you_mean(name, there.values())} "
                f"column={name}, columns={', '.join(there.values())}"
            )
    key = tuple(there[name.casefold()] for name in columns)
    if not rows.updating:
        raise InvalidPipelineError(
            "rows of this table only come, and none of them is looked up: leave primary_key out, or take one row of "
            f"each key by deduplicate, or by row_number() = 1 in a query. primary_key={', '.join(key)}"
        )
    known = None if rows.upstream is None else rows.upstream.row_key
    if known is not None and set(known) == set(key):
        return stream

    def build(inputs: Sequence[StepInput]) -> Operator:
        [each] = inputs
        where = None if each.upstream is None else each.upstream.where
        return Materializer.build(each.keys, each.spec, where, unique=True)

    return replace(rows, keys=key, step=StatefulStep("primary_key", build))
