"""An aggregate of a column as a value, which a pipeline stores."""

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.ipc

__all__ = ["Aggregation", "GroupFunction", "NOW"]

GroupFunction = Callable[[pa.Table], pa.Array | pa.ChunkedArray]
"""What `user_defined` takes: from the rows of many groups to one value for each."""


NOW = "now"
"""The `since` of an aggregate that begins with the first epoch that has it."""

_MORE = ("limit", "error", "q", "accuracy", "other", "since")
"""The options that an aggregate may do without."""


@dataclass(frozen=True, slots=True)
class Aggregation:
    """One aggregate of one column, not yet checked against an input. Build it with the functions of `agg`.

    `function` is its name (`registry.FUNCTIONS`). `column` is None for a count of rows; `by` is the column that orders
    `first`, `last` and `collect`, None for the event time; `other` is the second column of functions of two. The other
    fields are None for functions that do not take them. `code` is the user's function, which is no part of what is
    stored. `since` is `NOW`, or the number of the epoch after which the aggregate begins (`EpochContext.number`); None:
    it is of all rows.
    """

    function: str
    column: str | None = None
    by: str | None = None
    limit: int | None = None
    error: float | None = None
    q: float | None = None
    accuracy: int | None = None
    other: str | None = None
    columns: tuple[str, ...] | None = None
    returns: pa.DataType | None = None
    code: GroupFunction | None = field(default=None, compare=False)
    since: str | int | None = None

    @classmethod
    def of_columns(
        cls,
        function: str,
        columns: str | Sequence[str],
        by: str | None,
        limit: int | None = None,
        *,
        since: str | None = None,
    ) -> "Aggregation":
        """One of a column, or of several as one struct."""
        if isinstance(columns, str):
            return cls(function, columns, by, limit, since=since)
        given: Any = columns  # what is no sequence is refused later, with the name of the aggregate
        named = tuple(given) if isinstance(given, Sequence) else given
        return cls(function, None, by, limit, columns=named, since=since)

    @property
    def read(self) -> tuple[str, ...]:
        """The columns that it reads, each once."""
        named = (self.column, self.other, self.by, *(self.columns or ()))
        return tuple(dict.fromkeys(name for name in named if name is not None))

    def spelling(self) -> dict[str, object]:
        """The aggregate as plain JSON values. Options that older releases do not know are present only if set."""
        more = {name: getattr(self, name) for name in _MORE}
        if self.columns is not None:
            more["columns"] = list(self.columns)
        if self.returns is not None:
            more["returns"] = base64.b64encode(pa.schema([pa.field("", self.returns)]).serialize()).decode()
        return {
            "function": self.function,
            "column": self.column,
            "by": self.by,
            **{name: value for name, value in more.items() if value is not None},
        }

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "Aggregation":
        """The aggregate from the output of `spelling`; other values are ignored."""
        more = {name: values[name] for name in _MORE if name in values}
        if "columns" in values:
            more["columns"] = tuple(values["columns"])
        if "returns" in values:
            [returned] = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(values["returns"])))
            more["returns"] = returned.type
        return cls(values["function"], values["column"], values["by"], **more)
