"""What identifies the rows of a stream's table."""

from collections.abc import Sequence
from typing import Any

from dagster_ckpt.protocol.manifest.manifest import ROW_KEY, Pipeline

GROUP = "_group"
"""The key of a step without keys: always null, the same for all rows. In state tables alone."""

HOW_TO_A_KEY = (
    "a query's table has one where it keeps the columns of its GROUP BY, of a window its start, or where the asset "
    "declares primary_key"
)
"""What errors say that miss a key."""


def row_key(upstream: Pipeline) -> tuple[str, ...] | None:
    """The columns that identify the rows of an updating stream's table, or of a step's output that changes.

    Its changes are net by these. They are the key and, for windows with early results, the start of the window; no
    column for a table of one row. None where rows may be equal in all columns, as those of most joins may: then the
    changes are net by whole rows.
    """
    assert not upstream.appends, "rows of an append-only table may be equal"
    keys: Sequence[str]
    if ROW_KEY in upstream.parameters:
        more: Any = upstream.parameters[ROW_KEY]
        if more is None:
            return None
        keys = list(dict.fromkeys([*upstream.keys, *more]))
    else:
        keys = upstream.tables[0].keys
    return tuple(upstream.name_of(key) for key in keys if key != GROUP)
