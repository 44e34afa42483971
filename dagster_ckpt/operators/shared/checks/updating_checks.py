"""What a step over an upstream table that updates and deletes rows may be: each refusal says why, and what to do."""

from collections.abc import Mapping

import pyarrow as pa

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.protocol.change_columns import CHANGE_TYPE
from dagster_ckpt.protocol.manifest.manifest import Pipeline

UPDATING = "updating"
"""The parameter that says of an operator's input that its rows come and go; not there where they only come."""
WHERE = "where"
"""The parameter with the condition that such rows had to match."""

_TAKES_BACK = "aggregate"
_DEDUPLICATE = "deduplicate"
_JOIN = "a row that was joined could not be taken back"
_WHY: Mapping[str, str] = {
    "with_watermark": "a row may change long after its event time, so no watermark says that it is final",
    "window": "the row of a window is final when it comes out",
    "interval_join": _JOIN,
    "join": _JOIN,
    "instant_join": _JOIN,
    "window_join": _JOIN,
    "process": "a process function is only told of rows that come",
    _DEDUPLICATE: "where the kept row of a key is deleted, nobody knows which one would be next",
}
_WHY_ELSE = "this step could not take back what it has made of a row"


def row_key(upstream: Pipeline) -> tuple[str, ...]:
    """The columns that tell the rows of an updating stream's table apart: those that its change log is net by.

    They are the key, and with windows that show early results the window's start.
    """
    assert not upstream.appends, "rows of a table that only grows may be equal"
    return upstream.tables[0].keys


def check_step(step: str, keys: tuple[str, ...], upstream_key: tuple[str, ...]) -> None:
    """The step, by the name of the method, can follow an updating upstream. Raises `InvalidPipelineError`.

    `keys` are the step's own, `upstream_key` tells the upstream's rows apart (`row_key`). A stream that has no step, or
    a condition alone, is a `Mirror`. Which aggregates can follow, `RunningAggregate.build(updating=True)` says.
    """
    if step == _TAKES_BACK:
        return
    if step == _DEDUPLICATE and set(upstream_key) <= set(keys):
        raise InvalidPipelineError(
            f"the upstream's rows are one per key already: leave {step} out. step={step}, keys={', '.join(keys)}, "
            f"upstream_key={', '.join(upstream_key)}"
        )
    raise InvalidPipelineError(
        f"the upstream table updates and deletes rows, and {_WHY.get(step, _WHY_ELSE)}: read a stream that only "
        f"appends, or use .where or .key_by(...).aggregate. step={step}, upstream_key={', '.join(upstream_key)}"
    )


def check_changes(schema: pa.Schema) -> None:
    """The input says of each row what it is."""
    if CHANGE_TYPE not in schema.names:
        raise InvalidPipelineError(
            f"rows of an updating stream say what they are: read it as its change log. column={CHANGE_TYPE}, "
            f"columns={', '.join(schema.names)}"
        )
    type_ = schema.field(CHANGE_TYPE).type
    if not pa.types.is_string(type_.value_type if pa.types.is_dictionary(type_) else type_):
        raise InvalidPipelineError(f"what a row is is said by a string. column={CHANGE_TYPE}, type={type_}")


def parameters(where: str | None) -> dict[str, object]:
    """What an operator's fingerprint says of its updating input, as plain JSON values.

    With another condition the images of a row that is there would no longer be judged as when it came.
    """
    return {UPDATING: True} if where is None else {UPDATING: True, WHERE: where}
