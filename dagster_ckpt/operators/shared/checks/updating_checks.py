"""What a step over an upstream table that updates and deletes rows may be."""

from collections.abc import Mapping

import pyarrow as pa

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.protocol.change_columns import CHANGE_TYPE
from dagster_ckpt.protocol.manifest import manifest
from dagster_ckpt.protocol.manifest.manifest import Pipeline

UPDATING = "updating"
"""The parameter set for an operator whose input updates and deletes rows; absent for an append-only input."""
WHERE = "where"
"""The parameter with the condition that selects such rows."""
ROW_KEY = manifest.ROW_KEY

UNBOUNDED_JOIN = "join without expire_after"
"""The step that joins tables; with it, the step is called `join`."""
_WINDOW = "window"
_TAKE_BACK = (
    "aggregate",
    _WINDOW,
    "top",
    "over",
    UNBOUNDED_JOIN,
    "distinct",
    "union",
    "intersect",
    "intersect_all",
    "subtract",
    "except_all",
)
_DEDUPLICATE = "deduplicate"
_JOIN = (
    "a joined row is final when it is emitted, so it could not be retracted; .join without expire_after, then .where "
    "on both times, gives those of an inner join"
)
_WHY: Mapping[str, str] = {
    "interval_join": _JOIN,
    "join": _JOIN,
    "instant_join": _JOIN,
    "window_join": _JOIN,
    "process": "a process function receives added rows alone",
}
_WHY_ELSE = "this step could not retract its results"


def changes_schema(step: Pipeline) -> pa.Schema:
    """The columns of a step's changes, as the next step gets them: of one that only appends, its rows."""
    if step.appends:
        return step.output
    return step.output.append(pa.field(CHANGE_TYPE, pa.string(), nullable=False))


def check_step(step: str, keys: tuple[str, ...], upstream_key: tuple[str, ...] | None) -> None:
    """The step, given by its method's name, can follow an updating upstream. Raises `InvalidPipelineError`.

    `keys` are those of the step, `upstream_key` identifies the upstream's rows (`row_key`) or is None. A stream
    without a step, or with a condition alone, is a `Materializer`. `RunningAggregate.build(updating=True)` checks the
    aggregates.
    """
    if step in _TAKE_BACK:
        return
    named = ", ".join(upstream_key or ())
    if step != _DEDUPLICATE:
        raise InvalidPipelineError(
            f"the upstream table updates and deletes rows, and {_WHY.get(step, _WHY_ELSE)}: read a stream that only "
            "appends, or use .where, .key_by(...).aggregate, .window, .top, .deduplicate, or .join without "
            f"expire_after. step={step}, upstream_key={named}"
        )
    if upstream_key is not None and set(upstream_key) <= set(keys):
        raise InvalidPipelineError(
            f"the upstream's rows are one per key already: leave {step} out. step={step}, keys={', '.join(keys)}, "
            f"upstream_key={named}"
        )


def check_no_event_time(step: str | None, column: str) -> None:
    """Only a window needs the event time of a table's rows: for all other steps they are never late."""
    if step != _WINDOW:
        raise InvalidPipelineError(
            "the upstream table updates and deletes rows, however old they are, and only a window asks for their event "
            f"time: leave with_watermark out. step={step}, column={column}"
        )


def check_keys_stay(expire_after_us: int | None) -> None:
    """Keys of an updating input do not expire."""
    if expire_after_us is not None:
        raise InvalidPipelineError(
            "the upstream table updates and deletes rows, and rows of an expired key could not be retracted: "
            f"leave expire_after out. expire_after_us={expire_after_us}"
        )


def check_changes(schema: pa.Schema) -> None:
    """The input has the kind of each row."""
    if CHANGE_TYPE not in schema.names:
        raise InvalidPipelineError(
            f"the rows have no change type: read the change log of the updating stream. column={CHANGE_TYPE}, "
            f"columns={', '.join(schema.names)}"
        )
    type_ = schema.field(CHANGE_TYPE).type
    if not pa.types.is_string(type_.value_type if pa.types.is_dictionary(type_) else type_):
        raise InvalidPipelineError(
            f"the change type must be a string: cast the column. column={CHANGE_TYPE}, type={type_}"
        )


def parameters(where: str | None) -> dict[str, object]:
    """The part of an operator's fingerprint for an updating input, as plain JSON values.

    The condition is part of it: under another one, a retraction might not match the row that was added.
    """
    return {UPDATING: True} if where is None else {UPDATING: True, WHERE: where}
