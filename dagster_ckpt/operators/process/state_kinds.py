"""The kinds of state that a process function may declare."""

from dataclasses import dataclass

import pyarrow as pa


@dataclass(frozen=True)
class StateKind:
    """The state under one name: its columns, without those of the key. Any Arrow types, including nested ones."""

    schema: pa.Schema


class ValueState(StateKind):
    """At most one row for each key.

        state = {"newest": ValueState(pa.schema([("delay", pa.float64())]))}

    Without columns it is a set of keys.
    """


class ListState(StateKind):
    """Any number of rows for each key.

        state = {"waiting": ListState(pa.schema([("at", pa.timestamp("us")), ("amount", pa.int64())]))}

    They have no order.
    """
