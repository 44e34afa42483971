"""Session windows of a query: which session a row is in is computed over its key's rows in order of time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dagster_ckpt.operators import agg, over
from dagster_ckpt.operators.agg import Aggregation
from dagster_ckpt.operators.shared.ranked.order_by import quote
from dagster_ckpt.runtime.catalyst.catalyst import Catalyst
from dagster_ckpt.runtime.catalyst.values import Expression, Java
from dagster_ckpt.runtime.declared.stream import Stream
from dagster_ckpt.runtime.plans.keys import Dependency

_START, _END = "session_start()", "session_end()"
"""No column that a query reads has such a name."""


@dataclass(frozen=True)
class SessionKey:
    """The window of a session as a key. Below the aggregate it is that of each row: its time, and that plus the gap."""

    catalyst: Catalyst
    expression: Expression

    @staticmethod
    def is_one(key: Expression) -> bool:
        """Whether Spark would merge the windows that this key has."""
        return key.window == "session"

    def columns(self) -> list[Java]:
        """A row's window, and then its session's: when it starts and when it ends."""
        return [self.catalyst.make.field(self.expression.java, number) for number in range(2)]

    @property
    def is_collated(self) -> bool:
        """A window has no text."""
        return False

    def dependencies(self, names: Sequence[str]) -> list[Dependency]:
        """None: where a session starts is what it is known by, and sessions of other keys may end together."""
        return []

    def value(self, columns: Sequence[Java]) -> Java:
        names = (name for name, _ in self.expression.type.fields)
        made = self.catalyst.make.struct(list(zip(names, columns, strict=True)))
        return self.catalyst.convert.cast(made, self.expression.type)


def aggregated_sessions(rows: Stream, keys: Sequence[str], aggregations: Mapping[str, Aggregation]) -> Stream:
    """Aggregates of each session: its keys, of which the last two are the window, then the aggregates.

    Rows may come late or be taken back, which joins and splits sessions. A session is known by its start, so that no
    other one changes.
    """
    *others, start, end = keys
    rows = rows.key_by(*others) if others else rows
    found = rows.over(f"{quote(start)} asc", **{_START: over.session_start(end)})
    return found.key_by(*others, _START).aggregate(**{_END: agg.max(end)}, **aggregations)
